/* A stand-in for libnvidia-ml.so.1 that answers from a text file, read anew at every call.
 *
 * The file is named by MOCK_NVML. A line is: DEVICE FUNCTION CODE [VALUE...]; DEVICE is * for calls
 * without one, and CARD/NUMBER for a MIG instance. A call without a line answers 3 (not supported);
 * one that answers 9999 hangs until its line changes. Every call is noted in the file MOCK_NVML.calls.
 * Lists hold their records one after the other: processes as pid, bytes (and their MIG instances in a
 * line "instances": pid, gpu instance, compute instance); utilisation as pid, stamp, sm; samples as
 * stamp, value; fields as field, code, value; events as all XID codes since the beginning.
 * Built with OLD_DRIVER it lacks what came with drivers 450 to 550.
 * Structures follow nvml.h of the 12 series. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, TIMEOUT = 10, GREW = 1007, HANGS = 9999, VALUES = 512 };
typedef unsigned long long u64;

static char text[256];
static u64 values[VALUES];
static unsigned count;

static void note(const char *device, const char *function) {
    char path[4096];
    snprintf(path, sizeof path, "%s.calls", getenv("MOCK_NVML"));
    FILE *file = fopen(path, "a");
    if (!file) return;
    fprintf(file, "%s %s\n", device, function);
    fclose(file);
}

static int look_up(const char *device, const char *function) {
    char line[16384], path_device[32], name[96];
    int code, at, result = NOT_SUPPORTED;
    FILE *file = fopen(getenv("MOCK_NVML"), "r");
    count = 0;
    if (!file) return 999;
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%31s %95s %d%n", path_device, name, &code, &at) != 3) continue;
        if (strcmp(path_device, device) || strcmp(name, function)) continue;
        result = code;
        char *rest = line + at;
        rest[strcspn(rest, "\n")] = 0;
        while (*rest == ' ') rest++;
        snprintf(text, sizeof text, "%s", rest);
        char *end;
        while (count < VALUES && *rest) {
            values[count] = strtoull(rest, &end, 10);
            if (end == rest) break;
            count++;
            rest = end;
        }
    }
    fclose(file);
    return result;
}

static int answer(const char *device, const char *function) {
    int code;
    note(device, function);
    while ((code = look_up(device, function)) == HANGS) usleep(10000);
    return code;
}

enum { MIG = 1000 }; /* handles of MIG instances: 1000 × (card + 1) + number */

static const char *device_of(void *handle) {
    static char device[32];
    int number = (int)(size_t)handle;
    if (number < MIG) snprintf(device, sizeof device, "%d", number - 1);
    else snprintf(device, sizeof device, "%d/%d", number / MIG - 1, number % MIG);
    return device;
}

static int of(void *handle, const char *function) {
    return answer(device_of(handle), function);
}

static int string_of(int code, char *buffer, unsigned length) {
    if (code == OK) snprintf(buffer, length, "%s", text);
    return code;
}

static int number_of(void *handle, const char *function, unsigned *value) {
    int code = of(handle, function);
    if (code == OK) *value = (unsigned)values[0];
    return code;
}

int nvmlInitWithFlags(unsigned flags) { (void)flags; return answer("*", "nvmlInitWithFlags"); }
int nvmlShutdown(void) { return answer("*", "nvmlShutdown"); }
int nvmlSystemGetDriverVersion(char *buffer, unsigned length) {
    return string_of(answer("*", "nvmlSystemGetDriverVersion"), buffer, length);
}
int nvmlDeviceGetCount_v2(unsigned *value) {
    int code = answer("*", "nvmlDeviceGetCount_v2");
    if (code == OK) *value = (unsigned)values[0];
    return code;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    *handle = (void *)(size_t)(index + 1);
    return of(*handle, "nvmlDeviceGetHandleByIndex_v2");
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
    char device[32];
    for (int index = 0; index < 64; index++) {
        snprintf(device, sizeof device, "%d", index);
        if (answer(device, "nvmlDeviceGetUUID") != OK) break;
        if (strcmp(text, uuid)) continue;
        *handle = (void *)(size_t)(index + 1);
        return OK;
    }
    return NOT_FOUND;
}
int nvmlDeviceGetUUID(void *handle, char *buffer, unsigned length) {
    return string_of(of(handle, "nvmlDeviceGetUUID"), buffer, length);
}
int nvmlDeviceGetName(void *handle, char *buffer, unsigned length) {
    return string_of(of(handle, "nvmlDeviceGetName"), buffer, length);
}
int nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending) {
    int code = of(handle, "nvmlDeviceGetMigMode");
    if (code == OK) { *current = (unsigned)values[0]; *pending = (unsigned)values[0]; }
    return code;
}

struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };
int nvmlDeviceGetPciInfo_v3(void *handle, struct pci *pci) {
    int code = of(handle, "nvmlDeviceGetPciInfo_v3");
    memset(pci, 0, sizeof *pci);
    if (code == OK) snprintf(pci->bus_id, sizeof pci->bus_id, "%.31s", text);
    return code;
}

#ifndef OLD_DRIVER
struct memory_v2 { unsigned version; u64 total, reserved, free, used; };
int nvmlDeviceGetMemoryInfo_v2(void *handle, struct memory_v2 *memory) {
    int code = of(handle, "nvmlDeviceGetMemoryInfo_v2");
    if (code == OK && memory->version != ((2u << 24) | sizeof *memory)) return 25;
    if (code == OK) {
        memory->total = values[0];
        memory->reserved = values[1];
        memory->free = values[2];
        memory->used = values[3];
    }
    return code;
}
#endif
int nvmlDeviceGetMemoryInfo(void *handle, u64 *memory) {
    int code = of(handle, "nvmlDeviceGetMemoryInfo");
    if (code == OK) memcpy(memory, values, 3 * sizeof *memory);
    return code;
}
int nvmlDeviceGetUtilizationRates(void *handle, unsigned *rates) {
    int code = of(handle, "nvmlDeviceGetUtilizationRates");
    if (code == OK) { rates[0] = (unsigned)values[0]; rates[1] = (unsigned)values[1]; }
    return code;
}
int nvmlDeviceGetTotalEnergyConsumption(void *handle, u64 *value) {
    int code = of(handle, "nvmlDeviceGetTotalEnergyConsumption");
    if (code == OK) *value = values[0];
    return code;
}
int nvmlDeviceGetPowerUsage(void *handle, unsigned *value) {
    return number_of(handle, "nvmlDeviceGetPowerUsage", value);
}
int nvmlDeviceGetPowerManagementLimitConstraints(void *handle, unsigned *least, unsigned *most) {
    int code = of(handle, "nvmlDeviceGetPowerManagementLimitConstraints");
    if (code == OK) { *least = (unsigned)values[0]; *most = (unsigned)values[1]; }
    return code;
}
int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned *value) {
    return sensor ? 2 : number_of(handle, "nvmlDeviceGetTemperature", value);
}
int nvmlDeviceGetClockInfo(void *handle, int type, unsigned *value) {
    int code = of(handle, "nvmlDeviceGetClockInfo");
    if (code == OK) *value = (unsigned)values[type];
    return code;
}

struct process { unsigned pid; u64 used; unsigned instance, compute_instance; };
static int processes(void *handle, const char *function, unsigned *room, struct process *list) {
    static int grown;
    int code = of(handle, function);
    if (code == GREW) { /* the list grows once between probe and read */
        if (list && !grown++) { *room = count / 2; return INSUFFICIENT_SIZE; }
        code = OK;
    }
    if (code != OK) return code;
    unsigned have = count / 2, given = *room;
    *room = have;
    if (!list || given < have) return have ? INSUFFICIENT_SIZE : OK;
    for (unsigned i = 0; i < have; i++) {
        list[i].pid = (unsigned)values[2 * i];
        list[i].used = values[2 * i + 1];
        list[i].instance = list[i].compute_instance = ~0u;
    }
    if (look_up(device_of(handle), "instances") != OK) return OK;
    for (unsigned i = 0; i < have; i++)
        for (unsigned at = 0; at + 2 < count; at += 3)
            if (values[at] == list[i].pid) {
                list[i].instance = (unsigned)values[at + 1];
                list[i].compute_instance = (unsigned)values[at + 2];
            }
    return OK;
}
int nvmlDeviceGetComputeRunningProcesses_v2(void *handle, unsigned *room, struct process *list) {
    return processes(handle, "nvmlDeviceGetComputeRunningProcesses_v2", room, list);
}
int nvmlDeviceGetGraphicsRunningProcesses_v2(void *handle, unsigned *room, struct process *list) {
    return processes(handle, "nvmlDeviceGetGraphicsRunningProcesses_v2", room, list);
}
int nvmlDeviceGetMPSComputeRunningProcesses_v2(void *handle, unsigned *room, struct process *list) {
    return processes(handle, "nvmlDeviceGetMPSComputeRunningProcesses_v2", room, list);
}
#ifndef OLD_DRIVER
int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *room, struct process *list) {
    return processes(handle, "nvmlDeviceGetComputeRunningProcesses_v3", room, list);
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(void *handle, unsigned *room, struct process *list) {
    return processes(handle, "nvmlDeviceGetGraphicsRunningProcesses_v3", room, list);
}
int nvmlDeviceGetMPSComputeRunningProcesses_v3(void *handle, unsigned *room, struct process *list) {
    return processes(handle, "nvmlDeviceGetMPSComputeRunningProcesses_v3", room, list);
}
#endif

/* Real drivers announce 100 records whatever there is, and answer with fewer. */
struct use { unsigned pid; u64 stamp; unsigned sm, mem, enc, dec; };
int nvmlDeviceGetProcessUtilization(void *handle, struct use *list, unsigned *room, u64 since) {
    int code = of(handle, "nvmlDeviceGetProcessUtilization");
    unsigned found = 0;
    if (code != OK) return code;
    if (!list) { *room = 100; return INSUFFICIENT_SIZE; }
    for (unsigned i = 0; i + 2 < count; i += 3)
        if (values[i + 1] > since)
            list[found++] = (struct use){(unsigned)values[i], values[i + 1], (unsigned)values[i + 2], 0, 0, 0};
    *room = found;
    return found ? OK : NOT_FOUND;
}
#ifndef OLD_DRIVER
struct use_info { u64 stamp; unsigned pid, sm, mem, enc, dec, jpg, ofa; };
struct uses { unsigned version, room; u64 since; struct use_info *list; };
int nvmlDeviceGetProcessesUtilizationInfo(void *handle, struct uses *uses) {
    int code = of(handle, "nvmlDeviceGetProcessesUtilizationInfo");
    unsigned found = 0;
    if (code == OK && uses->version != ((1u << 24) | sizeof *uses)) return 25;
    if (code != OK) return code;
    if (!uses->list) { uses->room = 100; return INSUFFICIENT_SIZE; }
    for (unsigned i = 0; i + 2 < count; i += 3)
        if (values[i + 1] > uses->since)
            uses->list[found++] =
                (struct use_info){values[i + 1], (unsigned)values[i], (unsigned)values[i + 2], 0, 0, 0, 0, 0};
    uses->room = found;
    return found ? OK : NOT_FOUND;
}
#endif

struct sample { u64 stamp; u64 value; };
int nvmlDeviceGetSamples(void *handle, int type, u64 since, unsigned *kind, unsigned *room, struct sample *list) {
    int code = type == 1 ? of(handle, "nvmlDeviceGetSamples") : 2;
    unsigned found = 0;
    if (code != OK) return code;
    *kind = 1; /* unsigned int */
    for (unsigned i = 0; i + 1 < count; i += 2) {
        if (values[i] <= since) continue;
        if (list && found < *room) list[found] = (struct sample){values[i], values[i + 1]};
        found++;
    }
    *room = found;
    return found ? OK : NOT_FOUND;
}

int nvmlDeviceGetTotalEccErrors(void *handle, int kind, int counter, u64 *value) {
    int code = counter ? 2 : of(handle, "nvmlDeviceGetTotalEccErrors");
    if (code == OK) *value = values[kind];
    return code;
}

/* An event set belongs to the one card that registered with it. */
static void *watched[64];
static unsigned delivered[64], sets;
int nvmlEventSetCreate(size_t *set) {
    int code = answer("*", "nvmlEventSetCreate");
    if (code == OK) *set = ++sets;
    return code;
}
int nvmlEventSetFree(size_t set) { (void)set; return answer("*", "nvmlEventSetFree"); }
int nvmlDeviceRegisterEvents(void *handle, u64 types, size_t set) {
    int code = types == 8 ? of(handle, "nvmlDeviceRegisterEvents") : 2;
    if (code != OK) return code;
    watched[set] = handle;
    /* What happened before was not watched. */
    delivered[set] = of(handle, "nvmlEventSetWait_v2") == OK ? count : 0;
    return OK;
}
struct event { void *device; u64 type, data; unsigned instance, compute_instance; };
int nvmlEventSetWait_v2(size_t set, struct event *event, unsigned timeout) {
    int code = of(watched[set], "nvmlEventSetWait_v2");
    (void)timeout;
    if (code == NOT_SUPPORTED) return TIMEOUT; /* no line: nothing happened */
    if (code != OK) return code;
    if (delivered[set] >= count) return TIMEOUT;
    *event = (struct event){watched[set], 8, values[delivered[set]++], ~0u, ~0u};
    return OK;
}

#ifndef OLD_DRIVER
int nvmlDeviceGetRemappedRows(void *handle, unsigned *corr, unsigned *unc, unsigned *pending, unsigned *failed) {
    int code = of(handle, "nvmlDeviceGetRemappedRows");
    if (code != OK) return code;
    *corr = (unsigned)values[0];
    *unc = (unsigned)values[1];
    *pending = (unsigned)values[2];
    *failed = (unsigned)values[3];
    return OK;
}
struct field { unsigned field, scope; long long stamp, latency; int type, code; u64 value; };
int nvmlDeviceGetFieldValues(void *handle, int number, struct field *fields) {
    int code = of(handle, "nvmlDeviceGetFieldValues");
    if (code != OK) return code;
    for (int i = 0; i < number; i++) {
        fields[i].code = NOT_SUPPORTED;
        for (unsigned at = 0; at + 2 < count; at += 3)
            if (values[at] == fields[i].field) {
                fields[i].code = (int)values[at + 1];
                fields[i].type = 3; /* unsigned long long */
                fields[i].value = values[at + 2];
            }
    }
    return OK;
}

int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *value) {
    return number_of(handle, "nvmlDeviceGetMaxMigDeviceCount", value);
}
int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned index, void **instance) {
    *instance = (void *)((size_t)handle * MIG + index);
    int code = of(*instance, "nvmlDeviceGetMigDeviceHandleByIndex");
    return code == NOT_SUPPORTED ? NOT_FOUND : code; /* no line: no instance there */
}
int nvmlDeviceGetGpuInstanceId(void *handle, unsigned *value) {
    return number_of(handle, "nvmlDeviceGetGpuInstanceId", value);
}
int nvmlDeviceGetComputeInstanceId(void *handle, unsigned *value) {
    return number_of(handle, "nvmlDeviceGetComputeInstanceId", value);
}
#endif
