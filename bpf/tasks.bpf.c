/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * One pass over all processes, and over all threads where asked: a record of each that changed goes into an array that
 * user space has mapped. Two programs do the same: `snapshot`, started by bpf(2), where the kernel has open-coded
 * iterators (Linux 6.7); and `iterate`, started by reading the pinned iterator, where it has not.
 */
#include "measure.h"
#include "moment.h"

char LICENSE[] SEC("license") = "GPL"; /* Of the two; most of what is called is given to GPL programs alone. */

/* Whether the programs that count bytes of the network are there. */
const volatile u32 has_network = 0;

/*
 * User space sets the first six and clears the others before each pass; `turn` is the number of the reading. Where its
 * rows find no room there are further passes of the same one, and those are told only what was not told yet.
 */
struct pass {
    u64 reading; /* When it was begun, which is the number of no other. */
    u32 full, threads, private, turn, further, pad;
    u32 walked_processes, walked_threads;
    u32 process_count, process_lost, thread_count, thread_lost, private_count, private_lost;
};

#define MAPPED_ARRAY(name, of, length)                                                                                 \
    struct {                                                                                                           \
        __uint(type, BPF_MAP_TYPE_ARRAY);                                                                              \
        __uint(map_flags, BPF_F_MMAPABLE);                                                                             \
        __uint(max_entries, length);                                                                                   \
        __type(key, u32);                                                                                              \
        __type(value, of);                                                                                             \
    } name SEC(".maps")

MAPPED_ARRAY(control, struct pass, 1);
/* The loader sets their lengths. */
MAPPED_ARRAY(process_rows, struct task_record, 1);
MAPPED_ARRAY(thread_rows, struct task_record, 1);
MAPPED_ARRAY(private_rows, struct private_record, 1);

/* What was last told of a task: its fingerprints with their CPU time, and what must not be told to be less. */
struct told {
    u64 process, thread;
    u64 process_reading, thread_reading; /* In which it was. */
    u64 process_cpu_ns, thread_cpu_ns;
    u64 run_delay_ns, block_delay_ns, user_ns, system_ns;
    struct moved own;
    u32 descriptors, is_counted;
};
struct {
    __uint(type, BPF_MAP_TYPE_TASK_STORAGE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, int);
    __type(value, struct told);
} tellings SEC(".maps");

/* What a pass reckons with, and is too large for the stack. One pass runs at a time: its reader sees to that. */
struct scratch {
    struct totals process, thread;
};
struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, u32);
    __type(value, struct scratch);
} scratches SEC(".maps");

static __always_inline u64 mixed(u64 print, u64 with)
{
    return (print ^ with) * 0x9e3779b97f4a7c15ULL + (print >> 29);
}

/*
 * Pages of a memory that the verifier knows are read without a safe read: it counts where it is done of every task. By
 * itself, or clang would look where they lie before it is asked whether they lie there.
 */
static __noinline u64 mixed_pages(u64 print, struct mm_struct *memory)
{
    for (int kind = 0; kind < KINDS; kind++)
        print = mixed(print, counter_of(memory, kind)->count);
    return print;
}

static __always_inline u64 mixed_memory(u64 print, struct mm_struct *memory)
{
    if (!IS_BEFORE_6_2(memory))
        return mixed_pages(print, memory);
    for (int kind = 0; kind < KINDS; kind++)
        print = mixed(print, pages_before_6_2(memory, kind));
    return print;
}

/* What changes in time with CPU time, and what others change without it. */
static __always_inline u64 fingerprint(struct task_struct *task, u64 cpu_ns, u64 cgroup)
{
    struct mm_struct *memory = task->mm;
    u64 print = mixed(cpu_ns, cgroup);

    print = mixed(print, (u64)(u32)task->real_parent->tgid << 32 | (u32)task->static_prio << 16 | task->policy);
    print = mixed(print, (u64)(u32)state_of(task) << 32 | (u32)task->signal->nr_threads);
    if (memory)
        print = mixed_memory(mixed(print, memory->total_vm), memory);
    return print | 1; /* Never that of a new storage. */
}

/*
 * Who used no CPU time is looked at only each eighth pass: what others change of it (pages, parent, cgroup) is spread over
 * cache lines that nothing else is read of.
 */
#define TURNS 8
static __always_inline u32 has_turn(struct pass *pass, struct task_struct *task)
{
    return pass->full || (((u32)task->pid ^ pass->turn) & (TURNS - 1)) == 0;
}

static __always_inline void fill_memory(struct task_record *row, struct mm_struct *memory)
{
    struct pages pages = {};

    if (!memory)
        return; /* Of the kernel, or dead: none is what it has. */
    count_pages(&pages, (u64)memory);
    row->rss_anon = pages.of[ANONYMOUS_PAGES] * page_bytes;
    row->rss_file = pages.of[FILE_PAGES] * page_bytes;
    row->rss_shmem = pages.of[SHARED_PAGES] * page_bytes;
    row->swap = pages.of[SWAPPED_PAGES] * page_bytes;
    row->virtual = PROBED(memory, total_vm) * page_bytes;
}

static __noinline void fill(struct task_record *row, struct task_struct *task, struct totals *sum, u64 cgroup)
{
    if (!row || !task || !sum)
        return;
    __builtin_memset(row, 0, sizeof(*row));
    row->start_ns = task->start_boottime;
    row->pid = task->tgid;
    row->ppid = task->real_parent->tgid;
    row->uid = task->cred->uid.val;
    row->cgroup = cgroup;
    bpf_probe_read_kernel_str(row->comm, COMM_BYTES, task->comm);
    row->cpu_us = sum->cpu_ns / 1000;
    row->user_us = sum->user_ns / 1000;
    row->system_us = sum->system_ns / 1000;
    row->run_delay_us = HAS(task->sched_info.run_delay) ? (s64)(sum->run_delay_ns / 1000) : ABSENT;
    row->block_delay_us = HAS(task->delays) && task->delays ? (s64)(sum->block_delay_ns / 1000) : ABSENT;
    row->voluntary_switches = sum->voluntary;
    row->involuntary_switches = sum->involuntary;
    row->minor_faults = sum->minor;
    row->major_faults = sum->major;
    row->read_bytes = HAS(task->ioac.read_bytes) ? (s64)sum->own.read_bytes : ABSENT;
    row->written_bytes = HAS(task->ioac.read_bytes) ? (s64)sum->own.written_bytes : ABSENT;
    row->read_chars = HAS(task->ioac.rchar) ? (s64)sum->own.read_chars : ABSENT;
    row->written_chars = HAS(task->ioac.rchar) ? (s64)sum->own.written_chars : ABSENT;
    row->read_bytes_with_children = HAS(task->ioac.read_bytes) ? (s64)sum->all.read_bytes : ABSENT;
    row->written_bytes_with_children = HAS(task->ioac.read_bytes) ? (s64)sum->all.written_bytes : ABSENT;
    fill_memory(row, PROBED(task, mm)); /* So it is a number. */
    row->threads = task->signal->nr_threads;
    if (HAS(task->thread_info.cpu))
        row->last_cpu = task->thread_info.cpu;
    else
        row->last_cpu = PROBED(((struct task_struct___before_5_16 *)task), cpu);
    row->priority = task->prio - 100;
    row->nice = task->static_prio - 120;
    row->policy = task->policy;
    row->state = state_of(task);
}

/* Counts the bits of a table of open descriptors, as far as DESCRIPTORS_MAX. */
#define DESCRIPTORS_MAX (1 << 20)
struct bits {
    const unsigned long *word;
    u32 words, set;
};

static long count_word(u32 index, struct bits *bits)
{
    unsigned long word = 0;

    if (index >= bits->words)
        return 1;
    bpf_probe_read_kernel(&word, sizeof(word), bits->word + index);
    word -= word >> 1 & 0x5555555555555555UL;
    word = (word & 0x3333333333333333UL) + (word >> 2 & 0x3333333333333333UL);
    word = (word + (word >> 4)) & 0x0f0f0f0f0f0f0f0fUL;
    bits->set += word * 0x0101010101010101UL >> 56;
    return 0;
}

static __always_inline u32 descriptors_of(struct task_struct *task)
{
    struct files_struct *files = task->files;
    struct fdtable *table;
    struct bits bits = {};

    if (!files)
        return 0;
    table = PROBED(files, fdt);
    bits.word = PROBED(table, open_fds);
    bits.words = PROBED(table, max_fds) / 64;
    bpf_loop(DESCRIPTORS_MAX / 64, count_word, &bits, 0);
    return bits.set;
}

static __noinline void fill_private(struct private_record *row, struct task_struct *task, struct told *told, u32 full)
{
    struct pid *numbers = PROBED(task, thread_pid); /* So it is a number: to a pointer Linux 6.1 adds no level. */
    struct account *account = bpf_task_storage_get(&accounts, task, NULL, 0);
    char state = state_of(task);

    if (!row || !told)
        return;
    __builtin_memset(row, 0, sizeof(*row));
    row->start_ns = task->start_boottime;
    row->pid = task->tgid;
    row->namespace = ABSENT_U32; /* A process that ended and waits for its parent has none. */
    row->namespace_pid = ABSENT_U32;
    if (numbers) {
        struct upid *innermost = (void *)__builtin_preserve_access_index(&numbers->numbers) +
                                 PROBED(numbers, level) * SIZE_OF(struct upid);
        row->namespace_pid = PROBED(innermost, nr);
        row->namespace = PROBED(PROBED(innermost, ns), ns.inum);
    }
    if (full || !told->is_counted) {
        told->descriptors = descriptors_of(task);
        told->is_counted = 1;
    }
    row->descriptors = told->descriptors;
    row->tcp_received = account ? account->tcp_received : has_network ? 0 : ABSENT;
    row->tcp_sent = account ? account->tcp_sent : has_network ? 0 : ABSENT;
    row->udp_received = account ? account->udp_received : has_network ? 0 : ABSENT;
    row->udp_sent = account ? account->udp_sent : has_network ? 0 : ABSENT;
    row->syscall = syscall_of(task, state);
}

/* Whether an earlier pass of the same reading told of it. */
#define IS_TOLD(pass, told, kind) ((pass)->further && (told)->kind##_reading == (pass)->reading)

/* A thread by itself. */
static __noinline int tell_thread(struct pass *pass, struct scratch *scratch, struct task_struct *task)
{
    struct told *told = bpf_task_storage_get(&tellings, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
    struct task_record *row;
    u64 cpu_ns = task->se.sum_exec_runtime, cgroup, print;
    u32 number = pass->thread_count;

    pass->walked_threads++;
    if (told && IS_TOLD(pass, told, thread))
        return 0;
    if (told && told->thread && told->thread_cpu_ns == cpu_ns && !has_turn(pass, task))
        return 0;
    cgroup = cgroup_of(task);
    print = fingerprint(task, cpu_ns, cgroup);
    if (told && told->thread == print && !pass->full)
        return 0;
    row = bpf_map_lookup_elem(&thread_rows, &number);
    if (!row) {
        pass->thread_lost++;
        return 0;
    }
    scratch->thread = (struct totals){};
    ADD_THREAD(&scratch->thread, task, DIRECT, 0);
    fill(row, task, &scratch->thread, cgroup);
    row->tid = task->pid;
    pass->thread_count++;
    if (told) {
        told->thread = print;
        told->thread_reading = pass->reading;
        told->thread_cpu_ns = cpu_ns;
    }
    return 0;
}

/* A counter is at least what was told of it. */
#define STAND(sum, told, counter)                                                                                      \
    do {                                                                                                               \
        if ((sum)->counter < (told)->counter)                                                                          \
            (sum)->counter = (told)->counter;                                                                          \
        (told)->counter = (sum)->counter;                                                                              \
    } while (0)

/* A process: `sum` has all its threads together. Gives the number of its private row, whose `wait` is left; or -1. */
static __noinline int tell_process(struct pass *pass, struct task_struct *task, struct totals *sum)
{
    struct told *told = bpf_task_storage_get(&tellings, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
    struct task_record *row;
    struct private_record *private;
    u64 ended_cpu_ns = task->signal->sum_sched_runtime;
    u64 cgroup = cgroup_of(task), print = fingerprint(task, sum->cpu_ns, cgroup);
    u32 number = pass->process_count;

    pass->walked_processes++;
    if (told && (IS_TOLD(pass, told, process) || (told->process == print && !pass->full)))
        return -1;
    /* A thread that was stopped between its end and its account is in no sum, however often: what was told holds. */
    if (told && sum->cpu_ns < told->process_cpu_ns) {
        if (!pass->full)
            return -1;
        sum->cpu_ns = told->process_cpu_ns;
        sum->user_ns = told->user_ns;
        sum->system_ns = told->system_ns;
    }
    row = bpf_map_lookup_elem(&process_rows, &number);
    if (!row) {
        pass->process_lost++;
        return -1;
    }
    if (told) {
        /* A thread between its end and its account, or ended without one: a counter stands still, and never sinks. */
        STAND(sum, told, run_delay_ns);
        STAND(sum, told, block_delay_ns);
        STAND(sum, told, own.read_bytes);
        STAND(sum, told, own.written_bytes);
        STAND(sum, told, own.read_chars);
        STAND(sum, told, own.written_chars);
        told->process = print;
        told->process_reading = pass->reading;
        told->process_cpu_ns = sum->cpu_ns;
        told->user_ns = sum->user_ns;
        told->system_ns = sum->system_ns;
    }
    fill(row, task, sum, cgroup);
    row->unseen = has_unseen(bpf_task_storage_get(&accounts, task, NULL, 0), ended_cpu_ns);
    pass->process_count++;
    if (!pass->private || !told)
        return -1;
    number = pass->private_count;
    private = bpf_map_lookup_elem(&private_rows, &number);
    if (!private) {
        pass->private_lost++;
        return -1;
    }
    fill_private(private, task, told, pass->full);
    pass->private_count++;
    return number;
}

/*
 * Bodies of loops are functions: what is asked of a kernel's fields would otherwise be asked before the loop, and the
 * verifier forgets in it what the answer was, and goes where it must not.
 */
static __noinline int add_thread(struct scratch *scratch, struct task_struct *thread)
{
    ADD_THREAD(&scratch->process, thread, DIRECT, HAS_SETTLED(thread, DIRECT));
    return 0;
}

/* Whether no thread settled meanwhile. */
static __noinline int sum_threads(struct scratch *scratch, struct task_struct *process, struct pass *pass, u32 tells)
{
    struct account *account = bpf_task_storage_get(&accounts, process, NULL, 0);
    u32 before = settlings(account);
    struct bpf_iter_task threads;
    struct task_struct *thread, *held;

    begin(&scratch->process, process->signal, account);
    held = bpf_task_acquire(process);
    if (!held) { /* Just being taken away. */
        ADD_THREAD(&scratch->process, process, DIRECT, 0);
        return 1;
    }
    bpf_iter_task_new(&threads, held, THREADS_OF_PROCESS);
    while ((thread = bpf_iter_task_next(&threads))) {
        add_thread(scratch, thread);
        if (tells)
            tell_thread(pass, scratch, thread);
    }
    bpf_iter_task_destroy(&threads);
    bpf_task_release(held);
    return before == settlings(account) && !(before & 1);
}

/* Whether no more is to be told of a process, nor of its threads, in this reading. */
static __always_inline u32 is_done(struct pass *pass, struct task_struct *process)
{
    struct told *told;

    if (!pass->further || pass->threads)
        return 0;
    told = bpf_task_storage_get(&tellings, process, NULL, 0);
    if (!told || told->process_reading != pass->reading)
        return 0;
    pass->walked_processes++;
    return 1;
}

/* Whether a process of one thread used no CPU time since it was told of, and it is not its turn. */
static __always_inline u32 rests(struct pass *pass, struct task_struct *process)
{
    u64 cpu_ns = process->signal->sum_sched_runtime + process->se.sum_exec_runtime;
    struct told *told;

    if (has_turn(pass, process))
        return 0;
    told = bpf_task_storage_get(&tellings, process, NULL, 0);
    if (!told || !told->process || told->process_cpu_ns != cpu_ns)
        return 0;
    pass->walked_processes++;
    return 1;
}

static __noinline int visit(struct pass *pass, struct scratch *scratch, struct task_struct *process)
{
    u32 before, tells = pass->threads;

    if (!process->pid)
        return 0; /* Processors at rest are no process. */
    if (is_done(pass, process))
        return 0;
    if (process->signal->nr_threads > 1) {
        for (int number = 0; number < TRIES; number++) {
            before = endings(process->signal);
            if (sum_threads(scratch, process, pass, tells) && before == endings(process->signal) && !(before & 1))
                break;
            tells = 0;
        }
    } else {
        if (pass->threads)
            tell_thread(pass, scratch, process);
        if (rests(pass, process))
            return 0;
        begin(&scratch->process, process->signal, bpf_task_storage_get(&accounts, process, NULL, 0));
        ADD_THREAD(&scratch->process, process, DIRECT, 0);
    }
    tell_process(pass, process, &scratch->process);
    return 0;
}

static long tell_wait(u32 number, void *nothing)
{
    struct private_record *row = bpf_map_lookup_elem(&private_rows, &number);
    struct task_struct *process;

    if (!row)
        return 1;
    process = task_of(row->pid, row->start_ns);
    if (process) {
        find_wait(row->wait, process);
        bpf_task_release(process);
    }
    return 0;
}

SEC("syscall")
int snapshot(void *context)
{
    u32 zero = 0;
    struct pass *pass = bpf_map_lookup_elem(&control, &zero);
    struct scratch *scratch = bpf_map_lookup_elem(&scratches, &zero);
    struct bpf_iter_task processes;
    struct task_struct *process;

    if (!pass || !scratch)
        return 1;
    bpf_rcu_read_lock();
    bpf_iter_task_new(&processes, NULL, EVERY_PROCESS);
    while ((process = bpf_iter_task_next(&processes)))
        visit(pass, scratch, process);
    bpf_iter_task_destroy(&processes);
    bpf_rcu_read_unlock();
    bpf_loop(pass->private_count, tell_wait, NULL, 0);
    return 0;
}

SEC("iter/task")
int iterate(struct bpf_iter__task *context)
{
    u32 zero = 0;
    struct pass *pass = bpf_map_lookup_elem(&control, &zero);
    struct scratch *scratch = bpf_map_lookup_elem(&scratches, &zero);
    struct task_struct *task = context->task;
    struct private_record *private;
    struct account *account;
    u32 number;

    if (!pass || !scratch || !task)
        return 0;
    if (pass->threads)
        tell_thread(pass, scratch, task);
    if (task->pid != task->tgid)
        return 0;
    if (task->signal->nr_threads == 1 && rests(pass, task))
        return 0;
    account = bpf_task_storage_get(&accounts, task, NULL, 0);
    if (task->signal->nr_threads > 1) {
        sum_listed(&scratch->process, task->signal, account);
    } else {
        begin(&scratch->process, task->signal, account);
        ADD_THREAD(&scratch->process, task, DIRECT, 0);
    }
    number = tell_process(pass, task, &scratch->process);
    private = bpf_map_lookup_elem(&private_rows, &number);
    if (private) /* None has the number -1. */
        find_wait(private->wait, task);
    return 0;
}
