# SPDX-License-Identifier: Apache-2.0
"""The long tables about tasks: the fields of their records, and the source of each.

The formats are those of the C structs in ``bpf/records.h``, byte for byte. Sources are fields of ``task_struct`` and
of what it points to, in brackets the files of proc(5) with the same value.
"""

from struct import Struct

from sysmond.base.model import ABSENT, READERS, Answers, Ending, Join, Metric, Packing, Semantics, Table, Total
from sysmond.probe import counter, gauge, state, text

__all__ = [
    "ABSENT",
    "CGROUP_NAME",
    "COMMAND",
    "EXITS",
    "EXITS_RECORD",
    "KERNEL_STACK",
    "PROCESS",
    "PROCESS_HEAD",
    "PROCESS_PRIVATE",
    "THREAD",
    "THREAD_STATE",
]

# The value of an unsigned field that has none.
ABSENT_U32 = 0xFFFFFFFF

START = Metric("start", "s", Semantics.STATE, "When it started, as time since boot.", 9, "start_boottime (stat 22)")
PID = state("pid", "Its number in the initial PID namespace.", "tgid (stat 1)")
TID = state("tid", "Number of the thread.", "pid (task/TID)")
PPID = state("ppid", "Number of the parent process.", "real_parent->tgid (stat 4)")
UID = state("uid", "Real user.", "cred->uid (status Uid)")
CGROUP = state("cgroup", "Number of its cgroup; cgroup_name has the path.", "cgroups->dfl_cgrp->kn->id (cgroup)")
COMM = text("comm", "The name it gives itself, at most 15 bytes.", "comm (comm)")
CPU = counter("cpu", "s", "CPU time as measured by the scheduler.", 6, "se.sum_exec_runtime (schedstat 1)")
USER = counter("user", "s", "CPU time in user mode, measured in clock ticks.", 6, "utime (stat 14)")
SYSTEM = counter("system", "s", "CPU time in the kernel, measured in clock ticks.", 6, "stime (stat 15)")
READ = counter("read_bytes", "B", "Bytes fetched from storage.", 0, "ioac.read_bytes (task/*/io read_bytes)")
WRITTEN = counter("written_bytes", "B", "Bytes sent to storage.", 0, "ioac.write_bytes (task/*/io write_bytes)")
# The kernel adds what a child did to the signal->ioac of the parent that waits for it (kernel/exit.c).
_WITH_CHILDREN = (
    counter(
        "read_bytes_with_children",
        "B",
        "Bytes fetched from storage, including by children it has waited for: sums over processes count those twice.",
        0,
        "signal->ioac.read_bytes (io read_bytes)",
    ),
    counter(
        "written_bytes_with_children",
        "B",
        "Bytes sent to storage, including by children it has waited for: sums over processes count those twice.",
        0,
        "signal->ioac.write_bytes (io write_bytes)",
    ),
)
_WITH_CHILDREN_NAMES = tuple(metric.name for metric in _WITH_CHILDREN)
MINOR = counter("minor_faults", "1", "Page faults served from memory.", 0, "min_flt (stat 10)")
MAJOR = counter("major_faults", "1", "Page faults that had to read from storage.", 0, "maj_flt (stat 12)")

_MEASURES = (
    COMM,
    CPU,
    USER,
    SYSTEM,
    counter("run_delay", "s", "Time it waited for a CPU.", 6, "sched_info.run_delay (schedstat 2)"),
    counter(
        "block_delay", "s", "Time it waited for block I/O; needs delay accounting.", 6, "delays->blkio_delay (stat 42)"
    ),
    counter("voluntary_switches", "1", "Times it gave up the CPU.", 0, "nvcsw (status voluntary_ctxt_switches)"),
    counter(
        "involuntary_switches", "1", "Times the CPU was taken from it.", 0, "nivcsw (status nonvoluntary_ctxt_switches)"
    ),
    MINOR,
    MAJOR,
    READ,
    WRITTEN,
    counter("read_chars", "B", "Bytes returned by its read calls.", 0, "ioac.rchar (task/*/io rchar)"),
    counter("written_chars", "B", "Bytes passed to its write calls.", 0, "ioac.wchar (task/*/io wchar)"),
    gauge("rss_anon", "B", "Resident anonymous memory: heap and stacks.", 0, "mm->rss_stat (status RssAnon)"),
    gauge("rss_file", "B", "Resident memory of mapped files.", 0, "mm->rss_stat (status RssFile)"),
    gauge("rss_shmem", "B", "Resident shared memory.", 0, "mm->rss_stat (status RssShmem)"),
    gauge("swap", "B", "Memory in swap.", 0, "mm->rss_stat (status VmSwap)"),
    gauge("virtual", "B", "Size of its address space.", 0, "mm->total_vm (stat 23)"),
    gauge("threads", "1", "Number of its threads.", 0, "signal->nr_threads (stat 20)"),
    state("last_cpu", "CPU it last ran on.", "thread_info.cpu (stat 39)"),
    state("priority", "Priority in the kernel, less 100.", "prio (stat 18)"),
    state("nice", "Nice value.", "static_prio (stat 19)"),
    state("policy", "Scheduling: 0 other, 1 fifo, 2 rr, 3 batch, 5 idle, 6 deadline, 7 ext.", "policy (stat 41)"),
    text(
        "state",
        "R running or waiting for a CPU, S sleeping, D waiting uninterruptibly, T stopped, t traced, I idle,"
        " Z a zombie, which ended and has not been waited for, X gone.",
        "__state (stat 3)",
    ),
)
_MEASURES_FORMAT = "16s 18q 2I h b B s"
_UNSEEN = state(
    "bytes_unseen",
    "1 if some of its threads ended unseen: it read and wrote at least this much.",
    "signal->sum_sched_runtime",
)

_RSS = Total("rss", ("rss_anon", "rss_file", "rss_shmem"), "All resident memory.")
_STORAGE = ("read_bytes", "written_bytes")
_TRAFFIC = ("tcp_received", "tcp_sent", "udp_received", "udp_sent")
_KEY = (("pid", "pid"), ("start", "start"))
_ENDED = Ending("exits", _KEY, ("exit_code", "signal"))
ZOMBIE, GONE = "Z", "X"

_USER = Join(":user", (("uid", "id"),), (("username", "name"),))
_CGROUP = Join("cgroup_name", (("cgroup", "id"),), (("cgroup_path", "path"),))
_OWNERS = tuple((name, name) for name in READERS[":cgroup"][1])
_OWNER = Join(":cgroup", (("cgroup_path", "path"),), _OWNERS)
_SYSCALL = Join(":syscall", (("syscall", "number"),), (("syscall_name", "name"),))
_SIGNAL = Join(":signal", (("signal", "number"),), (("signal_name", "name"),))
_EXIT = Join(":exit", (("exit_code", "number"),), (("exit_name", "name"),))
_COMMAND = Join("command", _KEY, (("exe", "exe"), ("command", "command")))
_COMMAND_OF_SENDER = Join(
    "command",
    (("sender_pid", "pid"), ("sender_start", "start")),
    (("sender_exe", "exe"), ("sender_command", "command")),
)
_COMMAND_OF_THREAD = _COMMAND._replace(is_within=True)

_WHOSE = (("user", "username"), ("cgroup", "cgroup_path"))
_WHICH_CALL = ("syscall", "syscall_name")

PROCESS = Table(
    "process",
    (START, PID, PPID, UID, CGROUP, *_MEASURES, _UNSEEN, *_WITH_CHILDREN),
    "process",
    "Processes: all their threads together. ",
    Packing(f"<q I 4x I I q {_MEASURES_FORMAT} B 2x 2q", ("pid", "start")),
    Answers(
        top=(("cpu",), _STORAGE, _RSS.parts, ("run_delay",)),
        others_by=("cgroup",),
        show=(
            *("pid", "comm", "username", "cpu", "cpu:sum", "rss:last", "rss_anon:max"),
            *("read_bytes:sum", "written_bytes:sum", "state", "unit"),
        ),
        show_groups=("cpu", "cpu:sum", "rss", "read_bytes:sum", "written_bytes:sum"),
        totals=(_RSS,),
        joins=(_USER, _CGROUP, _OWNER, _COMMAND),
        ended_by=_ENDED._replace(remains=("state", ZOMBIE, GONE)),
        meant=_WHOSE,
        rows_only=_WITH_CHILDREN_NAMES,
    ),
)
# Of a record of ``process``: start, pid, ppid, uid, cgroup, comm and state.
PROCESS_HEAD = Struct("<q I 4x I I q 16s 156x s 19x")
THREAD = Table(
    "thread",
    (START, PID, TID, PPID, UID, CGROUP, *_MEASURES),
    "thread",
    "Threads, each by itself. Memory is that of their process.",
    Packing(f"<q I I I I q {_MEASURES_FORMAT} 19x", ("tid", "start")),
    Answers(
        top=(("cpu",), _STORAGE, ("run_delay",)),
        others_by=("cgroup",),
        show=("tid", "pid", "comm", "username", "cpu", "cpu:sum", "run_delay", "last_cpu", "state"),
        show_groups=("cpu", "cpu:sum", "run_delay:sum"),
        totals=(_RSS,),
        joins=(_USER, _CGROUP, _OWNER, _COMMAND_OF_THREAD),
        meant=_WHOSE,
    ),
)
PROCESS_PRIVATE = Table(
    "process_private",
    (
        START,
        PID,
        state("namespace_pid", "Its number in its innermost PID namespace.", "thread_pid (status NSpid)"),
        state("namespace", "Number of that namespace.", "thread_pid->numbers[].ns (ns/pid)"),
        gauge("descriptors", "1", "Open file descriptors; counted only at full readings.", 0, "files->fdt (fd)"),
        counter("tcp_received", "B", "Bytes received by TCP.", 0, "tracepoint sock_recv_length"),
        counter("tcp_sent", "B", "Bytes sent by TCP.", 0, "tracepoint sock_send_length"),
        counter("udp_received", "B", "Bytes received by UDP.", 0, "tracepoint sock_recv_length"),
        counter("udp_sent", "B", "Bytes sent by UDP.", 0, "tracepoint sock_send_length"),
        state("syscall", "System call that its first thread is in; -1 for none.", "task_pt_regs (syscall)"),
        text("wchan", "Kernel function that its first thread waits in.", "bpf_get_task_stack (wchan)"),
    ),
    "process",
    "What only a process's own user and root may know about it.",
    Packing("<q I I I i q q q q i 4x 32s", ("pid", "start")),
    Answers(
        top=(_TRAFFIC,),
        by="tcp_received:sum",
        show=(
            *("pid", "namespace_pid", "descriptors:last"),
            *(f"{name}:sum" for name in _TRAFFIC),
            *("syscall_name", "wchan"),
        ),
        show_groups=tuple(f"{name}:sum" for name in _TRAFFIC),
        joins=(_SYSCALL, _COMMAND),
        ended_by=_ENDED,
        meant=(_WHICH_CALL,),
    ),
)
_SENT = "tracepoint signal_generate"
_SENDER = (
    Metric(
        "sender_start",
        "s",
        Semantics.STATE,
        "When the process that sent this signal started, as time since boot; only with BPF, and only"
        " if it has the same user.",
        9,
        _SENT,
    ),
    state("sender_pid", "Number of the process that sent this signal; only if it has the same user.", _SENT),
    text("sender_comm", "Name of the process that sent this signal; only if it has the same user.", _SENT),
)
EXITS = Table(
    "exits",
    (
        START,
        Metric(
            "end",
            "s",
            Semantics.STATE,
            "When its last thread ended, as time since boot.",
            9,
            "tracepoint sched_process_exit",
        ),
        PID,
        PPID,
        UID,
        state("exit_code", "Exit code; none if a signal ended it.", "exit_code >> 8"),
        state("signal", "The signal that ended it; 0 for none.", "exit_code & 0x7f"),
        state("core_dumped", "1 if it left a core dump.", "exit_code & 0x80"),
        CGROUP,
        COMM,
        CPU._replace(semantics=Semantics.STATE),
        USER._replace(semantics=Semantics.STATE),
        SYSTEM._replace(semantics=Semantics.STATE),
        Metric(
            "peak_rss",
            "B",
            Semantics.STATE,
            "The most resident memory it ever had.",
            0,
            "mm->hiwater_rss (status VmHWM)",
        ),
        MINOR._replace(semantics=Semantics.STATE),
        MAJOR._replace(semantics=Semantics.STATE),
        READ._replace(semantics=Semantics.STATE),
        WRITTEN._replace(semantics=Semantics.STATE),
        *(metric._replace(semantics=Semantics.STATE) for metric in _WITH_CHILDREN),
        *_SENDER,
    ),
    "process",
    "Processes that ended, each once, with their lifetime totals.",
    Packing("<8x q q I I I H B B q 16s 10q q I 16s 4x", ("pid", "start"), lasting=False),
    Answers(
        top=(("cpu",), ("peak_rss",)),
        others_by=("cgroup", "comm"),
        sums=("cpu", "user", "system", "minor_faults", "major_faults", *_STORAGE),
        peaks=("peak_rss",),
        show=(
            *("pid", "comm", "exe", "start", "end", "signal_name", "exit_code", "signal", "core_dumped", "ppid"),
            *("uid", "username", "cgroup", "cgroup_path", "cpu", "user", "system", "peak_rss"),
            *("minor_faults", "major_faults", *_STORAGE),
        ),
        show_groups=("cpu", *_STORAGE),
        joins=(_USER, _CGROUP, _OWNER, _SIGNAL, _EXIT, _COMMAND, _COMMAND_OF_SENDER),
        meant=(*_WHOSE, ("signal", "signal_name")),
    ),
)
EXITS_RECORD = Struct(EXITS.packing.format if EXITS.packing else "")
COMMAND = Table(
    "command",
    (
        START,
        PID,
        state("uid", "Real user at the time of the reading.", "cred->uid (status Uid)"),
        text("exe", "Path of its program.", "bprm->filename (exe)"),
        text("command", "Its command line, secrets masked, at most 1 KiB.", "mm->arg_start (cmdline)"),
    ),
    "process",
    "Programs and command lines of processes.",
    Packing("<q I I Q Q", ("pid", "start")),
    Answers(joins=(_USER,), ended_by=_ENDED, meant=_WHOSE[:1]),
)
CGROUP_NAME = Table(
    "cgroup_name",
    (
        state("id", "Number of the cgroup.", "st_ino"),
        text("path", "Its path from the root of its hierarchy.", "/sys/fs/cgroup"),
    ),
    "cgroup",
    "Paths of cgroups, by number.",
    Packing("<q Q", ("id",)),
    Answers(joins=(Join(":cgroup", (("path", "path"),), _OWNERS),)),
)
THREAD_STATE = Table(
    "thread_state",
    (
        START,
        PID,
        TID,
        UID,
        state("syscall", "System call that it is in; -1 for none.", "task_pt_regs (task/TID/syscall)"),
        CGROUP,
        COMM,
        text(
            "state",
            "R running or waiting for a CPU, D waiting uninterruptibly; with the option sleeping also S"
            " sleeping and others.",
            "__state",
        ),
        text("wchan", "Kernel function that it waits in.", "bpf_get_task_stack (task/TID/wchan)"),
        state("stack", "Number of its kernel stack in the table kernel_stack.", "bpf_get_task_stack (task/TID/stack)"),
    ),
    "thread",
    "What every thread that runs or waits uninterruptibly was doing at this moment.",
    Packing("<q I I I i q 16s s 7x 32s q", ("tid", "start"), lasting=False),
    Answers(
        top=(),
        others_by=("cgroup", "syscall", "state", "wchan"),
        sums=(),
        show=("pid", "tid", "comm", "username", "state", "syscall_name", "wchan", "functions"),
        joins=(
            *(_USER, _CGROUP, _OWNER, _SYSCALL),
            Join("kernel_stack", (("stack", "id"),), (("functions", "functions"),), is_numbered=True),
            _COMMAND_OF_THREAD,
        ),
        meant=(*_WHOSE, _WHICH_CALL, ("stack", "functions")),
    ),
)
KERNEL_STACK = Table(
    "kernel_stack",
    (
        state("id", "Number of the stack, as in the table thread_state.", "of its frames"),
        text(
            "functions", "Its functions, innermost first, joined by a semicolon.", "bpf_get_task_stack (task/TID/stack)"
        ),
    ),
    "stack",
    "Kernel stacks that threads were in, by number, each once.",
    Packing("<q Q", ("id",)),
    Answers(meant=(("stack", "functions"),)),
)
