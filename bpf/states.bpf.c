/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * One pass over all threads: what each that runs or waits uninterruptibly is at, or all where asked. A stack of the
 * kernel is told once, by a number that is made of its frames; records refer to it.
 */
#include "measure.h"
#include "moment.h"

char LICENSE[] SEC("license") = "GPL"; /* Of the two; most of what is called is given to GPL programs alone. */

/* User space sets the first two and clears the others before each pass. Another round tells all stacks anew. */
struct states_pass {
    u32 all, round;
    u32 walked, count, lost, stack_count, stack_lost, pad;
};

#define MAPPED_ARRAY(name, of)                                                                                         \
    struct {                                                                                                           \
        __uint(type, BPF_MAP_TYPE_ARRAY);                                                                              \
        __uint(map_flags, BPF_F_MMAPABLE);                                                                             \
        __uint(max_entries, 1); /* The loader sets it. */                                                              \
        __type(key, u32);                                                                                              \
        __type(value, of);                                                                                             \
    } name SEC(".maps")

MAPPED_ARRAY(states_control, struct states_pass);
MAPPED_ARRAY(state_rows, struct state_record);
MAPPED_ARRAY(stack_rows, struct stack_record);

/* In which round a stack was told; those not seen for long make room. */
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 1); /* The loader sets it. */
    __type(key, s64);
    __type(value, u32);
} told_stacks SEC(".maps");

struct stack {
    union {
        u64 frames[STACK_FRAMES];
        struct frames first;
    };
};
struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, u32);
    __type(value, struct stack);
} scratch_stacks SEC(".maps");

/* The number of a stack: below 2^62, as all numbers of a recording. */
__noinline s64 number_of(struct stack *stack)
{
    u64 number = 0xcbf29ce484222325ULL;

    if (!stack)
        return 0;
    for (int frame = 0; frame < STACK_FRAMES; frame++)
        number = (number ^ stack->frames[frame]) * 0x9e3779b97f4a7c15ULL + (number >> 29);
    return number >> 2;
}

__noinline int name_frames(struct stack_record *record, struct stack *stack)
{
    static const char symbol[] = "%ps";

    if (!record || !stack)
        return 0;
    for (int frame = 0; frame < STACK_FRAMES; frame++) {
        record->functions[frame][0] = 0;
        if (stack->frames[frame])
            bpf_snprintf(record->functions[frame], WAIT_BYTES, symbol, &stack->frames[frame], sizeof(u64));
    }
    return 0;
}

static __always_inline void tell_stack(struct states_pass *pass, struct stack *stack, s64 number)
{
    u32 *told = bpf_map_lookup_elem(&told_stacks, &number), round = pass->round, row = pass->stack_count;
    struct stack_record *record;

    if (told && *told == round)
        return;
    record = bpf_map_lookup_elem(&stack_rows, &row);
    if (!record) { /* The next pass tells it. */
        pass->stack_lost++;
        return;
    }
    record->stack = number;
    name_frames(record, stack);
    pass->stack_count++;
    bpf_map_update_elem(&told_stacks, &number, &round, 0);
}

/* Not a part of the loop: what is asked of the kernel's fields would be asked before it, and forgotten within. */
static __noinline int tell(struct states_pass *pass, struct task_struct *task)
{
    u32 number = pass->count;
    struct state_record *row;
    char state = state_of(task);

    if (!task->pid)
        return 0; /* Processors at rest are no thread. */
    pass->walked++;
    if (!pass->all && state != 'R' && state != 'D')
        return 0;
    row = bpf_map_lookup_elem(&state_rows, &number);
    if (!row) {
        pass->lost++;
        return 0;
    }
    __builtin_memset(row, 0, sizeof(*row));
    row->start_ns = task->start_boottime;
    row->pid = task->tgid;
    row->tid = task->pid;
    row->uid = task->cred->uid.val;
    row->syscall = syscall_of(task, state);
    row->cgroup = cgroup_of(task);
    bpf_probe_read_kernel_str(row->comm, COMM_BYTES, task->comm);
    row->state = state;
    row->stack = ABSENT;
    pass->count++;
    return 0;
}

static long tell_where(u32 number, void *nothing)
{
    u32 zero = 0;
    struct states_pass *pass = bpf_map_lookup_elem(&states_control, &zero);
    struct state_record *row = bpf_map_lookup_elem(&state_rows, &number);
    struct stack *stack = bpf_map_lookup_elem(&scratch_stacks, &zero);
    struct task_struct *task;

    if (!pass || !row || !stack)
        return 1;
    if (!has_stack(row->state))
        return 0;
    task = task_of(row->tid, row->start_ns);
    if (!task)
        return 0;
    __builtin_memset(stack, 0, sizeof(*stack));
    if (has_stack(state_of(task)) && bpf_get_task_stack(task, stack, sizeof(*stack), 0) > 0) {
        name_wait(row->wait, &stack->first);
        row->stack = number_of(stack);
        tell_stack(pass, stack, row->stack);
    }
    bpf_task_release(task);
    return 0;
}

SEC("syscall")
int states(void *context)
{
    u32 zero = 0;
    struct states_pass *pass = bpf_map_lookup_elem(&states_control, &zero);
    struct bpf_iter_task threads;
    struct task_struct *thread;

    if (!pass)
        return 1;
    bpf_rcu_read_lock();
    bpf_iter_task_new(&threads, NULL, EVERY_THREAD);
    while ((thread = bpf_iter_task_next(&threads)))
        tell(pass, thread);
    bpf_iter_task_destroy(&threads);
    bpf_rcu_read_unlock();
    bpf_loop(pass->count, tell_where, NULL, 0);
    return 0;
}
