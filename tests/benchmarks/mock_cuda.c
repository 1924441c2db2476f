/* A stand-in for libcuda.so.1: a launch takes as long as its one argument says, and is noted.
 *
 * Lines in the file MOCK_CUDA: "PID holds" once a context exists, and "PID BEGIN END" (Unix
 * microseconds) after each launch. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static unsigned long long pending_ns;

static unsigned long long now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (unsigned long long)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

int cuInit(unsigned flags) { return flags ? 1 : 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return ordinal ? 101 : 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    *value = attribute == 16 && !device ? 108 : -1;
    return 0;
}
int cuDevicePrimaryCtxRetain(void **context, int device) {
    FILE *file = fopen(getenv("MOCK_CUDA"), "a");
    fprintf(file, "%d holds\n", getpid());
    fclose(file);
    *context = (void *)(size_t)(device + 1);
    return 0;
}
int cuCtxSetCurrent(void *context) { return context == (void *)1 ? 0 : 201; }
int cuModuleLoadData(void **module, const char *image) { *module = (void *)image; return 0; }
int cuModuleGetFunction(void **function, void *module, const char *name) {
    *function = module;
    return name[0] == 's' ? 0 : 500;
}
int cuMemAlloc_v2(unsigned long long *pointer, size_t bytes) { *pointer = 4096; return bytes ? 0 : 1; }
int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **parameters, void **extra) {
    if (!function || gx != 108 || gy != 1 || gz != 1 || bx != 1024 || by != 1 || bz != 1) return 1;
    if (shared || stream || extra || pending_ns) return 1;
    pending_ns = *(unsigned long long *)parameters[0];
    return 0;
}
int cuCtxSynchronize(void) {
    struct timespec span = {(time_t)(pending_ns / 1000000000), (long)(pending_ns % 1000000000)};
    unsigned long long begin = now_us();
    nanosleep(&span, NULL);
    FILE *file = fopen(getenv("MOCK_CUDA"), "a");
    fprintf(file, "%d %llu %llu\n", getpid(), begin, now_us());
    fclose(file);
    pending_ns = 0;
    return 0;
}
