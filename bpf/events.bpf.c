/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * What happens between two passes: processes that end, programs that are started and cgroups that are made, each a record
 * in a ring buffer; and bytes that processes send and receive, kept with their first threads.
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

/* Records for which there was no room; and how many of them their readers have told of, which only those write. */
struct lost {
    u64 exits, execs, cgroups;
    u64 told[3];
};
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, 1);
    __type(key, u32);
    __type(value, struct lost);
} lost SEC(".maps");

/* Processes of several threads of whose end was told lately: threads that end side by side all find themselves the last. */
struct process_key {
    u64 start_ns, pid;
};
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 1024);
    __type(key, struct process_key);
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
    struct thread_key key = {.start_ns = task->start_boottime, .pid = (u32)task->pid};
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

#define EEXIST 17
#define GROUP_EXIT 4 /* SIGNAL_GROUP_EXIT */

SEC("tp_btf/sched_process_exit")
int ended(u64 *context)
{
    struct task_struct *task = (void *)context[0], *first = task->group_leader;
    struct signal_struct *shared = task->signal;
    struct exit_record *record;
    struct process_key key;
    struct totals sum;
    struct account *account;
    u64 ended_cpu_ns;
    u32 code, is_known, one = 1;

    if (task->pid != task->tgid)
        settle(task); /* The last one, too: of several that end side by side each finds itself the last. */
    if (shared->live.counter)
        return 0;
    key.start_ns = first->start_boottime;
    key.pid = task->tgid;
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

/* Of one that is removed soon nobody would find the name. */
SEC("tp_btf/cgroup_mkdir")
int made(u64 *context)
{
    struct cgroup *cgroup = (void *)context[0];
    struct cgroup_record *record;
    long copied;

    if (!is_in_use(cgroup))
        return 0;
    record = bpf_ringbuf_reserve(&cgroups, sizeof(*record), 0);
    if (!record)
        return LOSE(cgroups);
    record->number = PROBED(PROBED(cgroup, kn), id);
    copied = bpf_probe_read_kernel_str(record->path, PATH_BYTES, (void *)context[1]);
    record->path_bytes = copied > 0 ? copied : 0;
    record->pad = 0;
    bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
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
