"""Chinese titles of the same dashboards: what stands in a heading, word for word, and nothing else.

Descriptions, legends and expressions stay as they are; uids and ids too, so that links hold in either
language. Invariant: every title, heading and variable of every view has its word here (tested).
"""

from __future__ import annotations

from typing import cast

from dashboards.normaliser import Json, Object

TITLES = {
    "Above the share": "超出份额",
    "Account": "账户",
    "Active part": "活跃部分",
    "Age of the node lock": "节点锁时长",
    "Amounts over time": "金额变化",
    "Blocked by a higher priority": "被高优先级阻塞",
    "Boards": "板卡",
    "Budget used": "预算使用率",
    "Budgets": "预算",
    "Card busy": "显卡繁忙度",
    "Card-hours by model": "按型号的卡时",
    "Card-hours charged": "计费卡时",
    "Cards down": "故障显卡",
    "Chargeback month": "月度费用分摊",
    "Charged": "已计费",
    "Clocks held down": "降频",
    "Close is due": "关账到期",
    "Cluster": "集群",
    "Cores allocated": "已分配算力",
    "Cores held": "持有算力",
    "Cost of the open month so far": "本月至今费用",
    "Coverage": "覆盖率",
    "Data source": "数据源",
    "Device": "设备",
    "Energy": "能耗",
    "Exporters": "采集器",
    "Facts lost, series left out": "丢失的事实与舍弃的序列",
    "Facts taken in": "已接收的事实",
    "Facts waiting": "待发送的事实",
    "Failing sources": "失败的数据来源",
    "Files and annotations that cannot be read": "无法读取的文件与注解",
    "Fleet": "总览",
    "GPU nodes": "GPU 节点",
    "GPU nodes without exporter": "无采集器的 GPU 节点",
    "GPU processes": "GPU 进程",
    "Held by model": "按型号持有",
    "Idle": "空闲",
    "Idle over time": "空闲变化",
    "Idle part of slices": "切片空闲部分",
    "Invariants broken": "账目不平",
    "Kubernetes view age": "Kubernetes 视图时龄",
    "Last heard of": "最近上报",
    "Locks expired": "超时的锁",
    "Locks nobody can read": "无法解析的锁",
    "Memory allocated": "已分配显存",
    "Memory allocated by node": "各节点已分配显存",
    "Memory by kind": "按类别的显存",
    "Memory held": "持有显存",
    "Memory held and used": "持有与使用的显存",
    "Memory in use by slice": "各切片使用的显存",
    "Memory of no known pod": "无归属显存",
    "Memory peak": "显存峰值",
    "Memory used": "使用的显存",
    "Memory used of its limit": "显存上限使用率",
    "Missing of the share": "份额缺口",
    "Models without a price": "未定价型号",
    "Namespace": "命名空间",
    "Neighbours and locks": "邻居与锁",
    "Node": "节点",
    "Node lock": "节点锁",
    "Node lock by outcome": "节点锁结果",
    "Node locks held": "被持有的节点锁",
    "Nodes": "节点列表",
    "Of no known pod": "无归属",
    "Oldest Kubernetes view": "最旧的 Kubernetes 视图",
    "Oldest snapshot": "最旧的快照",
    "Oldest waiting fact": "最旧的待发事实",
    "Over the limit, blocked": "超限与阻塞",
    "Past HAMi": "绕过 HAMi",
    "Period": "账期",
    "Pipeline health": "采集链路健康",
    "Pod": "Pod",
    "Pods past HAMi": "绕过 HAMi 的 Pod",
    "Pods that can never fit": "永远无法调度的 Pod",
    "Pods waiting": "等待中的 Pod",
    "Pods waiting by reason": "按原因等待的 Pod",
    "Pods waiting for a lock": "等待锁的 Pod",
    "Power": "功率",
    "Power by node": "各节点功率",
    "Power by tenant": "各租户功率",
    "Power now": "当前功率",
    "Power of the pod": "Pod 功率",
    "Pushes by result": "按结果的推送",
    "Quotas": "配额",
    "Region lock held": "共享区锁被持有",
    "Reserved": "已预留未绑定",
    "SM clock": "SM 时钟",
    "SM limit": "SM 上限",
    "SM limit enforced": "SM 上限已生效",
    "SM mean": "SM 均值",
    "SM time": "SM 时间",
    "SM time and its limit": "SM 时间与上限",
    "SM time by pod": "各 Pod 的 SM 时间",
    "SM time by slice": "各切片的 SM 时间",
    "SM time in use": "使用中的 SM 时间",
    "SM time in use by node": "各节点使用中的 SM 时间",
    "Slices above their share": "超出份额的切片",
    "Slices held": "持有的切片",
    "Slices of this tenant": "该租户的切片",
    "Slices on this card": "该卡上的切片",
    "Slices that starve": "被挤占的切片",
    "Slots of dead processes": "已死进程的槽位",
    "Slots taken": "已用槽位",
    "Starved share": "被挤占的份额",
    "State of the period": "账期状态",
    "Stranded memory": "搁置显存",
    "Temperature": "温度",
    "Tenant": "租户",
    "Tenants": "租户列表",
    "Tenants by SKU": "按 SKU 的租户",
    "Time a source takes": "数据来源耗时",
    "Time until a pod gets its slice": "Pod 获得切片的时间",
    "Unknown time by reason": "按原因的未知时间",
    "Use above the entitlement": "超出应得的使用",
    "Use without an allocation": "未经分配的使用",
    "Values refused, samples lost, disagreements": "拒绝的值、丢失的样本与分歧",
    "Waiting by reason": "按原因等待",
    "What blocks the close": "关账阻碍",
    "What these slices are": "切片信息",
    "Where the power goes": "功率去向",
    "Who holds a node lock": "节点锁持有者",
    "Who shares this card": "谁在共享这张卡",
    "active": "活跃",
    "age": "时长",
    "amount": "金额",
    "answers": "有应答",
    "any kernel ran": "有内核运行",
    "blocked": "阻塞",
    "blockers": "阻碍数",
    "budget": "预算",
    "card-hours": "卡时",
    "cards": "显卡",
    "cards down": "故障显卡",
    "cores allocated": "已分配算力",
    "cores held": "持有算力",
    "energy": "能耗",
    "exists": "存在",
    "forecast": "预测",
    "idle": "空闲",
    "joules a second": "每秒焦耳",
    "limit": "上限",
    "memory": "显存",
    "memory allocated": "已分配显存",
    "memory held": "持有显存",
    "memory limit": "显存上限",
    "memory peak": "显存峰值",
    "memory used": "使用的显存",
    "past due": "已逾期",
    "pods": "Pod 数",
    "power": "功率",
    "seconds ago": "秒前",
    "slots taken": "已用槽位",
    "snapshot age": "快照时龄",
    "spent": "已花费",
    "temperature": "温度",
    "unattributed processes": "无归属进程",
    "used": "已用",
}


def in_chinese(dashboard: Object) -> Object:
    """A normalised dashboard with Chinese titles; everything else as it was.

    Raises:
        KeyError: A title that has no word here.
    """
    result: Object = {**dashboard, "title": TITLES[str(dashboard["title"])]}
    result["panels"] = [_panel(cast("Object", panel)) for panel in cast("list[Json]", dashboard["panels"])]
    templating = cast("Object", dashboard["templating"])
    result["templating"] = {
        **templating,
        "list": [
            {**variable, "label": TITLES[str(variable["label"])]}
            for variable in cast("list[Object]", templating["list"])
        ],
    }
    return result


def _panel(panel: Object) -> Object:
    result: Object = {**panel, "title": TITLES[str(panel["title"])]}
    if panel.get("type") != "table":
        return result
    result["transformations"] = [_renamed(each) for each in cast("list[Object]", panel["transformations"])]
    config = cast("Object", panel["fieldConfig"])
    result["fieldConfig"] = {
        **config,
        "overrides": [
            {**each, "matcher": {"id": "byName", "options": TITLES[_heading(each)]}}
            for each in cast("list[Object]", config["overrides"])
        ],
    }
    return result


def _heading(override: Object) -> str:
    return str(cast("Object", override["matcher"])["options"])


def _renamed(transformation: Object) -> Object:
    options = cast("Object", transformation["options"])
    if "renameByName" not in options:
        return transformation
    names = cast("dict[str, str]", options["renameByName"])
    return {
        **transformation,
        "options": {**options, "renameByName": {key: TITLES[name] for key, name in names.items()}},
    }
