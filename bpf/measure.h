/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* What is read of a task: by the passes over all of them, and of a process that ends. */
#pragma once

#include "core.h"
#include "records.h"

/* Written by the loader before a program is loaded; the verifier takes them for constants. */
const volatile u32 processors = 1;
const volatile u32 page_bytes = 4096;
/* Which hierarchy numbers cgroups: version 2, or the one of a controller of version 1. */
enum { VERSION_2, OF_MEMORY, OF_PIDS, OF_CPU, OF_CPUACCT, OF_NONE };
const volatile u32 hierarchy = VERSION_2;

/* Bytes that went to and from storage, and through calls. */
struct moved {
    u64 read_bytes, written_bytes, read_chars, written_chars;
};

/* What a process has no counter for in the kernel, kept with its first thread. */
struct account {
    u64 tcp_received, tcp_sent, udp_received, udp_sent;
    /* Of its threads that ended, but the first: their bytes are in signal->ioac among those of waited-for children. */
    u64 run_delay_ns, block_delay_ns;
    struct moved moved;
    u32 begun, done; /* How many of them began to add theirs, and are done with it. */
    u32 unseen;      /* Whether others had ended before the first of them. */
};
struct {
    __uint(type, BPF_MAP_TYPE_TASK_STORAGE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, int);
    __type(value, struct account);
} accounts SEC(".maps");

/*
 * The number of a thread that no other had within the last hour, in half the room of a start and a pid. A pid has 22
 * bits at most (PID_MAX_LIMIT), and whoever gets the same one again starts at another nanosecond.
 */
static __always_inline u64 task_number(u64 start_ns, u32 pid)
{
    return start_ns << 22 | pid;
}

/* Threads that are in the account of their process and for a moment still in its list: what they have counts once. */
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 4096);
    __type(key, u64);
    __type(value, u32);
} settled SEC(".maps");

struct totals {
    u64 cpu_ns, user_ns, system_ns, run_delay_ns, block_delay_ns, voluntary, involuntary, minor, major;
    struct moved own, all; /* Without and with what waited-for children did. */
};

#define PF_EXITING 4
#define HAS_SETTLED(task, GET)                                                                                         \
    ({                                                                                                                 \
        u32 *is_settled_ = NULL;                                                                                       \
        if ((GET(task, flags) & PF_EXITING) && GET(task, pid) != GET(task, tgid)) {                                    \
            u64 key_ = task_number(GET(task, start_boottime), GET(task, pid));                                         \
            is_settled_ = bpf_map_lookup_elem(&settled, &key_);                                                        \
        }                                                                                                              \
        is_settled_ != NULL;                                                                                           \
    })

#define ADD_MOVED(to, task, GET)                                                                                       \
    do {                                                                                                               \
        if (HAS((task)->ioac.read_bytes)) {                                                                            \
            (to)->read_bytes += GET(task, ioac.read_bytes);                                                            \
            (to)->written_bytes += GET(task, ioac.write_bytes);                                                        \
        }                                                                                                              \
        if (HAS((task)->ioac.rchar)) {                                                                                 \
            (to)->read_chars += GET(task, ioac.rchar);                                                                 \
            (to)->written_chars += GET(task, ioac.wchar);                                                              \
        }                                                                                                              \
    } while (0)

/*
 * Add one thread. GET reads a field: DIRECT of a task that the verifier knows, PROBED of any other. IS_SETTLED: what
 * its process has no counter for is in the account already.
 */
#define ADD_THREAD(sum, task, GET, IS_SETTLED)                                                                         \
    do {                                                                                                               \
        (sum)->cpu_ns += GET(task, se.sum_exec_runtime);                                                               \
        (sum)->user_ns += GET(task, utime);                                                                            \
        (sum)->system_ns += GET(task, stime);                                                                          \
        (sum)->voluntary += GET(task, nvcsw);                                                                          \
        (sum)->involuntary += GET(task, nivcsw);                                                                       \
        (sum)->minor += GET(task, min_flt);                                                                            \
        (sum)->major += GET(task, maj_flt);                                                                            \
        ADD_MOVED(&(sum)->all, task, GET);                                                                             \
        if (IS_SETTLED)                                                                                                \
            break;                                                                                                     \
        ADD_MOVED(&(sum)->own, task, GET);                                                                             \
        if (HAS((task)->sched_info.run_delay))                                                                         \
            (sum)->run_delay_ns += GET(task, sched_info.run_delay);                                                    \
        if (HAS((task)->delays)) {                                                                                     \
            struct task_delay_info *delays_ = GET(task, delays);                                                       \
            if (delays_)                                                                                               \
                (sum)->block_delay_ns += GET(delays_, blkio_delay);                                                    \
        }                                                                                                              \
    } while (0)

/*
 * Begin with what its ended threads left behind. The account is read before any thread: one that settles meanwhile
 * is in the list or in neither, never in both.
 */
static __always_inline void begin(struct totals *sum, struct signal_struct *ended, struct account *account)
{
    *sum = (struct totals){
        .cpu_ns = ended->sum_sched_runtime,
        .user_ns = ended->utime,
        .system_ns = ended->stime,
        .voluntary = ended->nvcsw,
        .involuntary = ended->nivcsw,
        .minor = ended->min_flt,
        .major = ended->maj_flt,
    };
    if (account) {
        sum->own = account->moved;
        sum->run_delay_ns = account->run_delay_ns;
        sum->block_delay_ns = account->block_delay_ns;
    }
    if (HAS(ended->ioac.read_bytes)) {
        sum->all.read_bytes = ended->ioac.read_bytes;
        sum->all.written_bytes = ended->ioac.write_bytes;
    }
    if (HAS(ended->ioac.rchar)) {
        sum->all.read_chars = ended->ioac.rchar;
        sum->all.written_chars = ended->ioac.wchar;
    }
}

/*
 * Whether threads of a process ended that are not in its account: before the programs were there, or its first one when
 * another took its place by exec. The CPU time of those that ended is read before the account is looked for.
 */
static __always_inline u32 has_unseen(struct account *account, u64 ended_cpu_ns)
{
    return account && account->begun ? account->unseen : ended_cpu_ns != 0;
}

/*
 * How often threads ended so far, as far as this tells anything: odd while one just does. One that ended during a sum
 * may be in it twice or not at all, so the sum is made again, TRIES times at most: that another one ends each time is
 * rare.
 */
#define TRIES 4
static __always_inline u32 endings(struct signal_struct *threads)
{
    return HAS(threads->stats_lock.seqcount.seqcount.sequence) ? threads->stats_lock.seqcount.seqcount.sequence : 0;
}

/* The same of threads that settle: odd while one is at it, and of two at once it moves before they are done. */
static __always_inline u32 settlings(struct account *account)
{
    return account ? account->begun + account->done : 0;
}

/* A pass over the threads of a process where there is no open-coded iterator: along the list, by safe reads. */
#define LISTED_THREADS_MAX (1 << 20)
struct along {
    struct list_head *next, *last;
    struct totals *sum;
};

static long step(u32 index, struct along *along)
{
    struct task_struct *task;

    if (!along->next || along->next == along->last)
        return 1;
    task = (void *)along->next - OFFSET_OF(struct task_struct, thread_node);
    ADD_THREAD(along->sum, task, PROBED, HAS_SETTLED(task, PROBED));
    along->next = PROBED(task, thread_node.next);
    return 0;
}

/* Whether no thread ended meanwhile. */
static __noinline u32 sum_once(struct totals *sum, struct signal_struct *threads, struct account *account)
{
    u32 before = endings(threads), settled_before = settlings(account);
    struct along along = {
        .next = PROBED(threads, thread_head.next),
        .last = __builtin_preserve_access_index(&threads->thread_head),
        .sum = sum,
    };

    begin(sum, threads, account);
    bpf_loop(LISTED_THREADS_MAX, step, &along, 0);
    return before == endings(threads) && settled_before == settlings(account) && !((before | settled_before) & 1);
}

static __always_inline void sum_listed(struct totals *sum, struct signal_struct *threads, struct account *account)
{
    /* TRIES, and no loop: Linux 6.1 wants none to begin behind what hands a function to bpf_loop. */
    if (!sum_once(sum, threads, account) && !sum_once(sum, threads, account) && !sum_once(sum, threads, account))
        sum_once(sum, threads, account);
}

/* The number of the controller that the hierarchy in use has. */
static __always_inline u32 controller(void)
{
    if (hierarchy == OF_MEMORY && HAS_ENUM(enum cgroup_subsys_id, memory_cgrp_id))
        return ENUM(enum cgroup_subsys_id, memory_cgrp_id);
    if (hierarchy == OF_PIDS && HAS_ENUM(enum cgroup_subsys_id, pids_cgrp_id))
        return ENUM(enum cgroup_subsys_id, pids_cgrp_id);
    if (hierarchy == OF_CPU && HAS_ENUM(enum cgroup_subsys_id, cpu_cgrp_id))
        return ENUM(enum cgroup_subsys_id, cpu_cgrp_id);
    if (hierarchy == OF_CPUACCT && HAS_ENUM(enum cgroup_subsys_id, cpuacct_cgrp_id))
        return ENUM(enum cgroup_subsys_id, cpuacct_cgrp_id);
    return 0;
}

/* The cgroup that a state of the controller, in a list of those of all controllers, belongs to. */
static __always_inline struct cgroup *cgroup_in(void *states)
{
    struct cgroup_subsys_state *of = NULL;

    bpf_probe_read_kernel(&of, sizeof(of), states + controller() * sizeof(of));
    return PROBED(of, cgroup);
}

static __always_inline u64 cgroup_of(struct task_struct *task)
{
    struct css_set *set = task->cgroups;

    if (hierarchy == OF_NONE)
        return ABSENT;
    if (hierarchy == VERSION_2)
        return PROBED(PROBED(PROBED(set, dfl_cgrp), kn), id);
    return PROBED(PROBED(cgroup_in((void *)__builtin_preserve_access_index(&set->subsys)), kn), id);
}

/* Whether a cgroup is of the hierarchy in use. */
static __always_inline u32 is_in_use(struct cgroup *cgroup)
{
    if (hierarchy == OF_NONE)
        return 0;
    if (hierarchy == VERSION_2)
        return PROBED(PROBED(cgroup, root), hierarchy_id) == 0;
    return cgroup_in((void *)__builtin_preserve_access_index(&cgroup->subsys)) == cgroup;
}

enum { FILE_PAGES, ANONYMOUS_PAGES, SWAPPED_PAGES, SHARED_PAGES, KINDS };

static __always_inline struct percpu_counter *counter_of(struct mm_struct *memory, u32 kind)
{
    /* The stride of an array of structures is not relocated by itself. */
    return (void *)__builtin_preserve_access_index(&memory->rss_stat) + kind * SIZE_OF(struct percpu_counter);
}

#define IS_BEFORE_6_2(memory) HAS(((struct mm_struct___before_6_2 *)(memory))->rss_stat.count)

static __always_inline s64 pages_before_6_2(struct mm_struct *memory, u32 kind)
{
    struct mm_struct___before_6_2 *before = (void *)memory;
    s64 pages = 0;

    bpf_probe_read_kernel(&pages, sizeof(pages),
                          (void *)__builtin_preserve_access_index(&before->rss_stat.count) + kind * sizeof(pages));
    return pages;
}

/* Pages by kind, but for what processors have not yet added: at most a batch each. */
static __always_inline s64 pages_roughly(struct mm_struct *memory, u32 kind)
{
    return IS_BEFORE_6_2(memory) ? pages_before_6_2(memory, kind) : PROBED(counter_of(memory, kind), count);
}

/*
 * A variable of a processor lies a distance of that processor away from the address that all share. The distances are
 * found by one of our own, whose addresses are known: no kernel symbol is needed, which a kernel may not show.
 */
struct place {
    u64 address;
};
struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, u32);
    __type(value, struct place);
} places SEC(".maps");

static __always_inline s64 distance_of(u32 processor)
{
    u32 zero = 0;
    volatile struct place *place = bpf_map_lookup_percpu_elem(&places, &zero, processor);
    u64 shared = 0;

    if (!place)
        return 0;
    place->address = (u64)&places; /* Read again a pointer is a number, which may be reckoned with. */
    bpf_probe_read_kernel(&shared, sizeof(shared), (void *)place->address + OFFSET_OF(struct bpf_array, pptrs));
    place->address = (u64)place;
    return place->address - shared;
}

struct pages {
    s64 of[KINDS];
};

/* Exactly; `memory` is the address of a mm_struct. */
__noinline int count_pages(struct pages *pages, u64 memory)
{
    struct mm_struct *of = (void *)memory;
    void *parts[KINDS];

    if (!pages)
        return 0;
    for (int kind = 0; kind < KINDS; kind++)
        pages->of[kind] = pages_roughly(of, kind);
    if (!IS_BEFORE_6_2(memory)) {
        for (int kind = 0; kind < KINDS; kind++)
            parts[kind] = PROBED(counter_of(of, kind), counters);
        for (u32 processor = 0; processor < processors; processor++) {
            s64 distance = distance_of(processor);

            if (!distance)
                break;
            for (int kind = 0; kind < KINDS; kind++) {
                s32 part = 0;

                bpf_probe_read_kernel(&part, sizeof(part), parts[kind] + distance);
                pages->of[kind] += part;
            }
        }
    }
    for (int kind = 0; kind < KINDS; kind++)
        if (pages->of[kind] < 0)
            pages->of[kind] = 0; /* Read while it moved from one processor's part to another's. */
    return 0;
}
