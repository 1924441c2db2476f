/* A stand-in for libnvidia-ml.so.1 that answers from a text file, read anew at every call.
 *
 * The file is named by MOCK_NVML. A line is: DEVICE FUNCTION CODE [VALUE...]; DEVICE is * for calls
 * without one. A call without a line answers 3 (not supported). Lists hold their records one after
 * the other: processes as pid, bytes; utilisation as pid, stamp, sm; samples as stamp, value.
 * Structures follow nvml.h of the 12 series. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, GREW = 1007, VALUES = 64 };
typedef unsigned long long u64;

static char text[256];
static u64 values[VALUES];
static unsigned count;

static int answer(const char *device, const char *function) {
    char line[4096], path_device[32], name[96];
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

static int of(void *handle, const char *function) {
    char device[32];
    snprintf(device, sizeof device, "%d", (int)(size_t)handle - 1);
    return answer(device, function);
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
    return OK;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *room, struct process *list) {
    return processes(handle, "nvmlDeviceGetComputeRunningProcesses_v3", room, list);
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(void *handle, unsigned *room, struct process *list) {
    return processes(handle, "nvmlDeviceGetGraphicsRunningProcesses_v3", room, list);
}
int nvmlDeviceGetMPSComputeRunningProcesses_v3(void *handle, unsigned *room, struct process *list) {
    return processes(handle, "nvmlDeviceGetMPSComputeRunningProcesses_v3", room, list);
}

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
