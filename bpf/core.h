/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * What a BPF program needs of its surroundings: macros of libbpf's conventions, the functions of the kernel that are
 * called, and of its structures the fields that are read. libbpf finds each by name in the BTF of the kernel that
 * runs, so a structure here has neither all fields nor their places. Fields that not every kernel has are asked for
 * with HAS() before they are read.
 */
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef short s16;
typedef int s32;
typedef long long s64;

#define SEC(name) __attribute__((section(name), used))
#define __uint(name, value) int(*name)[value]
#define __type(name, value) typeof(value) *name
#define __ksym __attribute__((section(".ksyms")))
#define __weak __attribute__((weak))
#define __always_inline inline __attribute__((always_inline))
#define __noinline __attribute__((noinline))
#define NULL ((void *)0)

/* Whether this kernel has a field or a type; how long a type is; the value of an enumerator; where a field lies. */
#define HAS(field) __builtin_preserve_field_info(field, 2)
#define HAS_TYPE(type) __builtin_preserve_type_info(*(type *)0, 0)
#define SIZE_OF(type) __builtin_preserve_type_info(*(type *)0, 1)
#define HAS_ENUM(type, name) __builtin_preserve_enum_value(*(typeof(type) *)name, 0)
#define ENUM(type, name) __builtin_preserve_enum_value(*(typeof(type) *)name, 1)
#define OFFSET_OF(type, field) __builtin_preserve_field_info(((type *)0)->field, 0)

/* A field of something whose pointer the verifier knows, and of something that may be gone: zero then. */
#define DIRECT(from, field) ((from)->field)
#define PROBED(from, field)                                                                                            \
    ({                                                                                                                 \
        typeof((from)->field) value_ = 0;                                                                              \
        bpf_probe_read_kernel(&value_, sizeof(value_), &(from)->field);                                                \
        value_;                                                                                                        \
    })

enum {
    BPF_MAP_TYPE_HASH = 1,
    BPF_MAP_TYPE_ARRAY = 2,
    BPF_MAP_TYPE_PERCPU_ARRAY = 6,
    BPF_MAP_TYPE_LRU_HASH = 9,
    BPF_MAP_TYPE_RINGBUF = 27,
    BPF_MAP_TYPE_TASK_STORAGE = 29,
};
enum { BPF_NOEXIST = 1, BPF_F_NO_PREALLOC = 1, BPF_F_MMAPABLE = 1024 };
enum { BPF_LOCAL_STORAGE_GET_F_CREATE = 1, BPF_RB_NO_WAKEUP = 1, BPF_RB_FORCE_WAKEUP = 2 };
enum { BPF_RB_AVAIL_DATA, BPF_RB_RING_SIZE };

struct task_struct;
struct pt_regs;

static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*const bpf_map_update_elem)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*const bpf_probe_read_user)(void *into, u32 bytes, const void *from) = (void *)112;
static long (*const bpf_probe_read_kernel)(void *into, u32 bytes, const void *from) = (void *)113;
static long (*const bpf_probe_read_kernel_str)(void *into, u32 bytes, const void *from) = (void *)115;
static u64 (*const bpf_ktime_get_boot_ns)(void) = (void *)125;
static long (*const bpf_ringbuf_output)(void *ring, void *from, u64 bytes, u64 flags) = (void *)130;
static void *(*const bpf_ringbuf_reserve)(void *ring, u64 bytes, u64 flags) = (void *)131;
static void (*const bpf_ringbuf_submit)(void *record, u64 flags) = (void *)132;
static u64 (*const bpf_ringbuf_query)(void *ring, u64 what) = (void *)134;
static long (*const bpf_get_task_stack)(struct task_struct *, void *into, u32 bytes, u64 flags) = (void *)141;
static void *(*const bpf_task_storage_get)(void *map, struct task_struct *, void *value, u64 flags) = (void *)156;
static struct task_struct *(*const bpf_get_current_task_btf)(void) = (void *)158;
static long (*const bpf_snprintf)(char *into, u32 bytes, const char *format, u64 *values, u32 of_values) = (void *)165;
static long (*const bpf_task_pt_regs)(struct task_struct *) = (void *)175;
static long (*const bpf_loop)(u32 times, void *step, void *with, u64 flags) = (void *)181;
static void *(*const bpf_map_lookup_percpu_elem)(void *map, const void *key, u32 processor) = (void *)195;

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct {
    int counter;
} atomic_t;
struct list_head {
    struct list_head *next;
};
struct percpu_counter {
    s64 count;
    s32 *counters;
};
struct mm_rss_stat___before_6_2 {
    struct {
        s64 counter;
    } count[4];
};
struct mm_struct___before_6_2 {
    struct mm_rss_stat___before_6_2 rss_stat;
};
struct mm_struct {
    struct percpu_counter rss_stat[4];
    unsigned long total_vm, hiwater_rss, arg_start, arg_end;
};
struct task_io_accounting {
    u64 rchar, wchar, read_bytes, write_bytes;
};
struct sched_info {
    u64 run_delay;
};
struct task_delay_info {
    u64 blkio_delay;
};
struct sched_entity {
    u64 sum_exec_runtime;
};
struct signal_struct {
    atomic_t live;
    int nr_threads;
    u32 flags;
    struct list_head thread_head;
    struct {
        struct {
            struct {
                u32 sequence;
            } seqcount;
        } seqcount;
    } stats_lock;
    struct task_io_accounting ioac;
    u64 utime, stime, sum_sched_runtime;
    unsigned long nvcsw, nivcsw, min_flt, maj_flt, maxrss;
    int group_exit_code;
};
struct kernfs_node {
    u64 id;
};
struct cgroup_subsys_state;
struct cgroup_root {
    int hierarchy_id;
};
struct cgroup {
    struct kernfs_node *kn;
    struct cgroup_subsys_state *subsys[1];
    struct cgroup_root *root;
};
struct cgroup_subsys_state {
    struct cgroup *cgroup;
};
struct css_set {
    struct cgroup_subsys_state *subsys[1];
    struct cgroup *dfl_cgrp;
};
struct ns_common {
    u32 inum;
};
struct pid_namespace {
    struct ns_common ns;
};
struct upid {
    int nr;
    struct pid_namespace *ns;
};
struct pid {
    u32 level;
    struct upid numbers[1];
};
struct fdtable {
    u32 max_fds;
    unsigned long *open_fds;
};
struct files_struct {
    struct fdtable *fdt;
};
typedef struct {
    u32 val;
} kuid_t;
struct cred {
    kuid_t uid;
};
struct thread_info {
    u32 cpu;
};
struct sigaction {
    void *sa_handler;
};
struct k_sigaction {
    struct sigaction sa;
};
struct sighand_struct {
    struct k_sigaction action[1];
};
struct kernel_siginfo {
    int si_code;
};
struct task_struct {
    struct thread_info thread_info;
    u32 __state;
    int prio, static_prio;
    u32 policy, flags;
    struct sched_entity se;
    struct sched_info sched_info;
    struct mm_struct *mm;
    int exit_state, exit_code;
    int pid, tgid;
    struct task_struct *real_parent, *group_leader;
    struct list_head thread_node;
    struct pid *thread_pid;
    u64 utime, stime, start_boottime;
    unsigned long nvcsw, nivcsw, min_flt, maj_flt;
    const struct cred *cred;
    char comm[16];
    struct files_struct *files;
    struct signal_struct *signal;
    struct sighand_struct *sighand;
    struct task_io_accounting ioac;
    struct css_set *cgroups;
    struct task_delay_info *delays;
};
struct task_struct___before_5_14 {
    long state;
};
struct task_struct___before_5_16 {
    u32 cpu;
};
struct pt_regs {
#if defined(__TARGET_ARCH_x86)
    unsigned long orig_ax;
#elif defined(__TARGET_ARCH_arm64)
    s32 syscallno;
#else
    unsigned long none;
#endif
};
struct bpf_array {
    void *pptrs[1];
};
struct bpf_iter_meta {
    u64 session_id;
};
struct bpf_iter__task {
    struct bpf_iter_meta *meta;
    struct task_struct *task;
};
struct linux_binprm {
    const char *filename;
    int argc;
};
struct sock_common {
    u16 skc_family;
};
struct sock {
    struct sock_common __sk_common;
    u16 sk_protocol;
};
enum cgroup_subsys_id { cpu_cgrp_id = 1, cpuacct_cgrp_id, memory_cgrp_id, pids_cgrp_id };

#pragma clang attribute pop

/* The open-coded iterator over tasks, Linux 6.7. */
struct bpf_iter_task {
    u64 opaque[3];
} __attribute__((aligned(8)));
enum { EVERY_PROCESS = 0, EVERY_THREAD = 1, THREADS_OF_PROCESS = 2 };
extern int bpf_iter_task_new(struct bpf_iter_task *, struct task_struct *, u32 flags) __weak __ksym;
extern struct task_struct *bpf_iter_task_next(struct bpf_iter_task *) __weak __ksym;
extern void bpf_iter_task_destroy(struct bpf_iter_task *) __weak __ksym;
extern struct task_struct *bpf_task_acquire(struct task_struct *) __weak __ksym;
extern struct task_struct *bpf_task_from_pid(s32 pid) __weak __ksym;
extern void bpf_task_release(struct task_struct *) __weak __ksym;
extern void bpf_rcu_read_lock(void) __weak __ksym;
extern void bpf_rcu_read_unlock(void) __weak __ksym;
