/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * What happens between two passes: processes that end, programs that are started and cgroups that are made, each a record
 * in a ring buffer; who sent the signals by which processes end; and bytes that processes send and receive, kept with
 * their first threads.
 */
#include "measure.h"

char LICENSE[] SEC("license") = "GPL"; /* Of the two; most of what is called is given to GPL programs alone. */

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 4096); /* The loader sets it. */
} exits SEC(".maps");
struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 4096);
} execs SEC(".maps");
struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 4096);
} cgroups SEC(".maps");
struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 4096);
} kills SEC(".maps");

/* Records for which there was no room; and how many of them their readers have told of, which only those write. */
struct lost {
    u64 exits, execs, cgroups, kills;
    u64 told[4];
};
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, 1);
    __type(key, u32);
    __type(value, struct lost);
} lost SEC(".maps");

/* Processes of several threads of whose end was told lately: threads that end side by side all find themselves the last. */
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 1024);
    __type(key, u64);
    __type(value, u32);
} told_ends SEC(".maps");

#define LOSE(of)                                                                                                       \
    ({                                                                                                                 \
        u32 zero = 0;                                                                                                  \
        struct lost *count = bpf_map_lookup_elem(&lost, &zero);                                                        \
        if (count)                                                                                                     \
            __sync_fetch_and_add(&count->of, 1);                                                                       \
        0;                                                                                                             \
    })

static __always_inline struct account *account_of(struct task_struct *task)
{
    return bpf_task_storage_get(&accounts, task->group_leader, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
}

/*
 * A thread ends: what its process has no counter for is put down. But of the first one, which is in the list as long as
 * there is the process. It is marked before it adds: a sum that is made meanwhile has it once or not at all.
 */
static __always_inline void settle(struct task_struct *task)
{
    u64 key = task_number(task->start_boottime, task->pid);
    u64 ended_cpu_ns = task->signal->sum_sched_runtime; /* Before it counts itself: who comes later ends later. */
    struct account *account = account_of(task);
    u32 one = 1;

    if (!account)
        return;
    if (!__sync_fetch_and_add(&account->begun, 1) && ended_cpu_ns)
        account->unseen = 1;
    if (bpf_map_update_elem(&settled, &key, &one, 0)) {
        account->unseen = 1;
    } else {
        if (HAS(task->sched_info.run_delay))
            __sync_fetch_and_add(&account->run_delay_ns, task->sched_info.run_delay);
        if (HAS(task->delays) && task->delays)
            __sync_fetch_and_add(&account->block_delay_ns, task->delays->blkio_delay);
        if (HAS(task->ioac.read_bytes)) {
            __sync_fetch_and_add(&account->moved.read_bytes, task->ioac.read_bytes);
            __sync_fetch_and_add(&account->moved.written_bytes, task->ioac.write_bytes);
        }
        if (HAS(task->ioac.rchar)) {
            __sync_fetch_and_add(&account->moved.read_chars, task->ioac.rchar);
            __sync_fetch_and_add(&account->moved.written_chars, task->ioac.wchar);
        }
    }
    __sync_fetch_and_add(&account->done, 1);
}

static __always_inline u64 peak_of(struct task_struct *task)
{
    struct mm_struct *memory = PROBED(task, mm); /* So it is a number. */
    struct pages pages = {};
    u64 now, peak;

    if (!memory) /* Before Linux 6.16 it is given back by now; the largest it ever had is kept, earlier programs' too. */
        return task->signal->maxrss * page_bytes;
    count_pages(&pages, (u64)memory);
    now = pages.of[FILE_PAGES] + pages.of[ANONYMOUS_PAGES] + pages.of[SHARED_PAGES];
    peak = PROBED(memory, hiwater_rss);
    return (now > peak ? now : peak) * page_bytes;
}

/* The signals that do not end a process that has no handler of them (signal(7)): they stop it, or do nothing. */
enum { SIGCHLD = 17, SIGCONT, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGWINCH = 28, SIGNALS = 64 };
#define BIT(signal) (1ULL << ((signal) - 1))
#define HARMLESS                                                                                                       \
    (BIT(SIGCHLD) | BIT(SIGCONT) | BIT(SIGSTOP) | BIT(SIGTSTP) | BIT(SIGTTIN) | BIT(SIGTTOU) | BIT(SIGURG) |           \
     BIT(SIGWINCH))

/* Whether a process neither handles nor ignores a signal by which it ends then. */
static __always_inline u32 ends_by(struct task_struct *task, u32 signal)
{
    struct sighand_struct *handlers;
    u64 handler = 1;

    if (signal < 1 || signal > SIGNALS || BIT(signal) & HARMLESS)
        return 0;
    handlers = PROBED(task, sighand); /* So it is a number. */
    if (bpf_probe_read_kernel(&handler, sizeof(handler),
                              (void *)__builtin_preserve_access_index(&handlers->action) +
                                  (signal - 1) * SIZE_OF(struct k_sigaction) +
                                  OFFSET_OF(struct k_sigaction, sa.sa_handler)))
        return 0;
    return !handler;
}

/*
 * Whether a process sent it, and not the kernel: what si_code says. Timers, message queues, and files that are ready
 * have codes of their own; so has a process that gives itself out for one, by rt_sigqueueinfo(2): it is not told.
 */
enum { SEND_SIG_NOINFO, SEND_SIG_PRIV }; /* Instead of a pointer. */
enum { SI_ASYNCNL = -60, SI_DETHREAD = -7, SI_SIGIO = -5, SI_ASYNCIO, SI_MESGQ, SI_TIMER, SI_USER = 0 };

static __always_inline u32 is_of_a_process(u64 *context)
{
    u64 info = SEND_SIG_PRIV;
    s32 code;

    bpf_probe_read_kernel(&info, sizeof(info), &context[1]); /* A pointer to the verifier would never be NULL. */
    if (info <= SEND_SIG_PRIV)
        return info == SEND_SIG_NOINFO;
    code = PROBED((struct kernel_siginfo *)info, si_code);
    return code <= SI_USER && !(code <= SI_TIMER && code >= SI_SIGIO) && code != SI_DETHREAD && code != SI_ASYNCNL;
}

#define GENERATIONS_MAX 32

/* Whether a process descends from another. */
static __always_inline u32 descends(struct task_struct *task, u32 from)
{
    struct task_struct *parent = PROBED(task, real_parent);

    for (u32 generation = 0; generation < GENERATIONS_MAX; generation++) {
        u32 pid = PROBED(parent, tgid);

        if (pid == from)
            return 1;
        if (pid <= 1)
            return 0;
        parent = PROBED(parent, real_parent);
    }
    return from == 1;
}

/*
 * Who sent the last signal that may end a process, kept with its first thread until it ends. Only one is pending of
 * each number, so an earlier one of the same was taken by now; whatever comes once a process is to end is ignored.
 */
struct sender {
    u64 start_ns;
    u32 signal, pid, uid, is_ancestor;
    char comm[COMM_BYTES];
};
struct {
    __uint(type, BPF_MAP_TYPE_TASK_STORAGE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, int);
    __type(value, struct sender);
} senders SEC(".maps");

enum { TRACE_SIGNAL_DELIVERED = 0, TRACE_SIGNAL_LOSE_INFO = 4 }; /* It is delivered in both cases. */
#define PF_KTHREAD 0x00200000

/* Whether a task has a name: two numbers are compared in a tenth of the time in which a text is read. */
static __always_inline u32 is_called(struct task_struct *task, const char name[COMM_BYTES])
{
    const u64 *now = (const u64 *)task->comm, *then = (const u64 *)name;

    return now[0] == then[0] && now[1] == then[1];
}

/* The lock of the target's signals is held: two that are sent to one process do not write at once. */
SEC("tp_btf/signal_generate")
int signalled(u64 *context)
{
    u32 signal = context[0];
    struct task_struct *target = (void *)context[2], *sending, *first;
    s32 result = context[4];
    struct sender *sender;

    if ((result != TRACE_SIGNAL_DELIVERED && result != TRACE_SIGNAL_LOSE_INFO) || !ends_by(target, signal))
        return 0;
    sending = bpf_get_current_task_btf();
    if (sending->tgid == target->tgid || sending->flags & PF_KTHREAD || !is_of_a_process(context)) {
        sender = bpf_task_storage_get(&senders, target->group_leader, NULL, 0);
        if (sender && sender->signal == signal)
            sender->signal = 0;
        return 0;
    }
    sender = bpf_task_storage_get(&senders, target->group_leader, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
    if (!sender)
        return 0;
    first = sending->group_leader;
    sender->signal = signal;
    sender->uid = sending->cred->uid.val;
    if (sender->pid != (u32)sending->tgid || sender->start_ns != first->start_boottime) { /* Else it is the same again. */
        sender->pid = sending->tgid;
        sender->start_ns = first->start_boottime;
        sender->is_ancestor = descends(target, sending->tgid);
    } else if (is_called(first, sender->comm)) {
        return 0;
    }
    __builtin_memset(sender->comm, 0, COMM_BYTES);
    bpf_probe_read_kernel_str(sender->comm, COMM_BYTES, first->comm);
    return 0;
}

/*
 * Who sent the signal by which a process ends: in its record where both are of one user, since that is public; and in
 * one of its own, restricted, where it is none of its ancestors.
 */
static __always_inline void name_sender(struct exit_record *record, struct task_struct *first)
{
    struct sender *sender;
    struct kill_record *kill;

    record->sender_start_ns = ABSENT;
    record->sender_pid = ABSENT_U32;
    if (!record->signal)
        return;
    sender = bpf_task_storage_get(&senders, first, NULL, 0);
    if (!sender || sender->signal != record->signal)
        return;
    if (sender->uid == record->uid) {
        record->sender_start_ns = sender->start_ns;
        record->sender_pid = sender->pid;
        __builtin_memcpy(record->sender_comm, sender->comm, COMM_BYTES);
    }
    if (sender->is_ancestor)
        return;
    kill = bpf_ringbuf_reserve(&kills, sizeof(*kill), 0);
    if (!kill) {
        LOSE(kills);
        return;
    }
    kill->end_ns = record->end_ns;
    kill->pid = record->pid;
    kill->uid = record->uid;
    kill->sender_start_ns = sender->start_ns;
    kill->sender_pid = sender->pid;
    kill->sender_uid = sender->uid;
    kill->signal = sender->signal;
    kill->pad = 0;
    __builtin_memcpy(kill->comm, record->comm, COMM_BYTES);
    __builtin_memcpy(kill->sender_comm, sender->comm, COMM_BYTES);
    bpf_ringbuf_submit(kill, 0); /* It wakes who reads, once until that is done. */
}

#define EEXIST 17
#define GROUP_EXIT 4 /* SIGNAL_GROUP_EXIT */

SEC("tp_btf/sched_process_exit")
int ended(u64 *context)
{
    struct task_struct *task = (void *)context[0], *first = task->group_leader;
    struct signal_struct *shared = task->signal;
    struct exit_record *record;
    struct totals sum;
    struct account *account;
    u64 key, ended_cpu_ns;
    u32 code, is_known, one = 1;

    if (task->pid != task->tgid)
        settle(task); /* The last one, too: of several that end side by side each finds itself the last. */
    if (shared->live.counter)
        return 0;
    key = task_number(first->start_boottime, task->tgid);
    if (shared->nr_threads > 1 ? bpf_map_update_elem(&told_ends, &key, &one, BPF_NOEXIST) == -EEXIST
                               : bpf_map_lookup_elem(&told_ends, &key) != NULL)
        return 0;
    record = bpf_ringbuf_reserve(&exits, sizeof(*record), 0);
    if (!record)
        return LOSE(exits);
    __builtin_memset(record, 0, sizeof(*record));
    record->end_ns = bpf_ktime_get_boot_ns();
    record->start_ns = first->start_boottime;
    record->pid = task->tgid;
    record->ppid = first->real_parent->tgid;
    record->uid = task->cred->uid.val;
    code = shared->flags & GROUP_EXIT ? shared->group_exit_code : first->exit_code;
    record->exit_code = code >> 8 & 0xff;
    record->signal = code & 0x7f;
    record->core_dumped = code >> 7 & 1;
    record->cgroup = cgroup_of(task);
    bpf_probe_read_kernel_str(record->comm, COMM_BYTES, first->comm);
    name_sender(record, first);
    if (shared->nr_threads > 1) { /* Others have not been taken away yet. */
        account = account_of(task);
        ended_cpu_ns = shared->sum_sched_runtime;
        sum_listed(&sum, shared, account);
    } else {
        ended_cpu_ns = shared->sum_sched_runtime;
        account = bpf_task_storage_get(&accounts, first, NULL, 0);
        begin(&sum, shared, account);
        ADD_THREAD(&sum, task, DIRECT, 0);
    }
    record->cpu_us = sum.cpu_ns / 1000;
    record->user_us = sum.user_ns / 1000;
    record->system_us = sum.system_ns / 1000;
    record->peak_rss = peak_of(task);
    record->minor_faults = sum.minor;
    record->major_faults = sum.major;
    record->read_bytes_with_children = HAS(task->ioac.read_bytes) ? (s64)sum.all.read_bytes : ABSENT;
    record->written_bytes_with_children = HAS(task->ioac.read_bytes) ? (s64)sum.all.written_bytes : ABSENT;
    is_known = HAS(task->ioac.read_bytes) && !has_unseen(account, ended_cpu_ns);
    record->read_bytes = is_known ? (s64)sum.own.read_bytes : ABSENT;
    record->written_bytes = is_known ? (s64)sum.own.written_bytes : ABSENT;
    bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
    return 0;
}

/* Where a record is made before it is known how long it is. */
struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, u32);
    __type(value, struct exec_record);
} scratch_execs SEC(".maps");

/* Who reads looks every few seconds, and is woken where that may be too late: from a quarter of the buffer on. */
static __always_inline u64 wakes_up(void)
{
    u64 waiting = bpf_ringbuf_query(&execs, BPF_RB_AVAIL_DATA);

    return waiting > bpf_ringbuf_query(&execs, BPF_RB_RING_SIZE) / 4 ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP;
}

SEC("tp_btf/sched_process_exec")
int started(u64 *context)
{
    struct task_struct *task = (void *)context[0];
    struct linux_binprm *program = (void *)context[2];
    struct mm_struct *memory = task->mm;
    struct exec_record *record;
    u64 start, bytes, filename_bytes;
    u32 zero = 0;
    long copied;

    record = bpf_map_lookup_elem(&scratch_execs, &zero);
    if (!record)
        return 0;
    record->start_ns = task->group_leader->start_boottime;
    record->pid = task->tgid;
    record->uid = task->cred->uid.val;
    copied = bpf_probe_read_kernel_str(record->texts, FILENAME_BYTES, PROBED(program, filename));
    filename_bytes = copied > 0 ? copied - 1 : 0;
    if (filename_bytes >= FILENAME_BYTES)
        return 0; /* Never, but the verifier does not know that. */
    start = PROBED(memory, arg_start);
    bytes = PROBED(memory, arg_end) - start;
    if (bytes > ARGUMENTS_BYTES)
        bytes = ARGUMENTS_BYTES;
    if (bpf_probe_read_user(record->texts + filename_bytes, bytes, (void *)start))
        bytes = 0;
    record->filename_bytes = filename_bytes;
    record->arguments_bytes = bytes;
    if (bpf_ringbuf_output(&execs, record, EXEC_HEAD_BYTES + filename_bytes + bytes, wakes_up()))
        return LOSE(execs);
    return 0;
}

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, u32);
    __type(value, struct cgroup_record);
} scratch_cgroups SEC(".maps");

/* Of one that is removed soon nobody would find the name. */
SEC("tp_btf/cgroup_mkdir")
int made(u64 *context)
{
    struct cgroup *cgroup = (void *)context[0];
    struct cgroup_record *record;
    u32 zero = 0;
    long copied;

    if (!is_in_use(cgroup))
        return 0;
    record = bpf_map_lookup_elem(&scratch_cgroups, &zero);
    if (!record)
        return 0;
    record->number = PROBED(PROBED(cgroup, kn), id);
    copied = bpf_probe_read_kernel_str(record->path, PATH_BYTES, (void *)context[1]);
    if (copied < 0 || copied > PATH_BYTES)
        copied = 0;
    if (bpf_ringbuf_output(&cgroups, record, CGROUP_HEAD_BYTES + copied, BPF_RB_NO_WAKEUP))
        return LOSE(cgroups);
    return 0;
}

enum { AF_INET = 2, AF_INET6 = 10, TCP = 6, UDP = 17, MPTCP = 262, MSG_PEEK = 2 };
enum { NEITHER, BY_TCP, BY_UDP };

static __always_inline u32 protocol_of(struct sock *socket, s32 bytes)
{
    u16 family, protocol;

    if (bytes <= 0)
        return NEITHER;
    family = PROBED(socket, __sk_common.skc_family);
    if (family != AF_INET && family != AF_INET6)
        return NEITHER;
    protocol = PROBED(socket, sk_protocol);
    return protocol == TCP || protocol == MPTCP ? BY_TCP : protocol == UDP ? BY_UDP : NEITHER;
}

SEC("tp_btf/sock_send_length")
int sent(u64 *context)
{
    s32 bytes = context[1];
    u32 by = protocol_of((void *)context[0], bytes);
    struct account *account = by == NEITHER ? NULL : account_of(bpf_get_current_task_btf());

    if (account)
        __sync_fetch_and_add(by == BY_TCP ? &account->tcp_sent : &account->udp_sent, bytes);
    return 0;
}

SEC("tp_btf/sock_recv_length")
int received(u64 *context)
{
    s32 bytes = context[1], flags = context[2];
    u32 by = flags & MSG_PEEK ? NEITHER : protocol_of((void *)context[0], bytes);
    struct account *account = by == NEITHER ? NULL : account_of(bpf_get_current_task_btf());

    if (account)
        __sync_fetch_and_add(by == BY_TCP ? &account->tcp_received : &account->udp_received, bytes);
    return 0;
}
