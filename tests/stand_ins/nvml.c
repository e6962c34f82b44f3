/* A stand-in for NVIDIA's management library: one card, with the process of STAND_IN_PID and another one.
   Types and codes are those of nvml.h. */
#include <stdlib.h>
#include <string.h>

typedef struct { unsigned int pid; unsigned long long used; unsigned int instance, compute; } process;
typedef struct { unsigned long long total, free, used; } memory;

static int copy(char *to, unsigned int room, const char *text) {
    if (strlen(text) >= room) return 7;
    strcpy(to, text);
    return 0;
}
int nvmlInit_v2(void) { return 0; }
int nvmlSystemGetDriverVersion(char *to, unsigned int room) { return copy(to, room, "595.91.07"); }
int nvmlDeviceGetCount_v2(unsigned int *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **device) { *device = (void *)0x7f0000000001; return index ? 15 : 0; }
int nvmlDeviceGetUUID(void *device, char *to, unsigned int room) {
    return device == (void *)0x7f0000000001 ? copy(to, room, "GPU-0123abcd-0000-1111-2222-333344445555") : 2;
}
int nvmlDeviceGetName(void *device, char *to, unsigned int room) { return copy(to, room, "NVIDIA GeForce RTX 3090"); }
int nvmlDeviceGetMemoryInfo(void *device, memory *found) {
    found->total = 24ULL << 30, found->free = 10ULL << 30, found->used = 14ULL << 30;
    return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned int *count, process *found) {
    unsigned int many = 300, room = *count;
    *count = many;
    if (room < many) return 7;
    memset(found, 0, many * sizeof *found);
    found[0].pid = 999999, found[0].used = 1ULL << 30;
    found[299].pid = (unsigned int)atoi(getenv("STAND_IN_PID")), found[299].used = 13ULL << 30;
    found[298] = found[299], found[298].used = ~0ULL;
    return 0;
}
