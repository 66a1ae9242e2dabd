/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * The records of the long tables: the same bytes as the formats in sysmond/tasks/tables.py, which says what each field
 * means. Times of a CPU are in µs, moments in ns of boot time, memory in bytes. What a kernel does not tell is ABSENT.
 */
#pragma once

#define ABSENT ((s64)(1ULL << 63))
#define ABSENT_U32 0xffffffffu
#define COMM_BYTES 16
#define WAIT_BYTES 32
#define PATH_BYTES 512
#define FILENAME_BYTES 256
#define ARGUMENTS_BYTES 512

/* Tables process (tid is zero) and thread. */
struct task_record {
    u64 start_ns;
    u32 pid, tid, ppid, uid;
    u64 cgroup;
    char comm[COMM_BYTES];
    s64 cpu_us, user_us, system_us, run_delay_us, block_delay_us;
    s64 voluntary_switches, involuntary_switches, minor_faults, major_faults;
    s64 read_bytes, written_bytes, read_chars, written_chars;
    s64 rss_anon, rss_file, rss_shmem, swap, virtual;
    u32 threads, last_cpu;
    s16 priority;
    signed char nice;
    u8 policy;
    char state;
    u8 unseen;
    char pad[2];
    s64 read_bytes_with_children, written_bytes_with_children;
};
_Static_assert(sizeof(struct task_record) == 224, "sysmond/tasks/tables.py, PROCESS and THREAD");

struct private_record {
    u64 start_ns;
    u32 pid, namespace_pid, namespace, descriptors;
    s64 tcp_received, tcp_sent, udp_received, udp_sent;
    s32 syscall;
    u32 pad;
    char wait[WAIT_BYTES];
};
_Static_assert(sizeof(struct private_record) == 96, "sysmond/tasks/tables.py, PROCESS_PRIVATE");

struct exit_record {
    u64 start_ns, end_ns;
    u32 pid, ppid, uid;
    u16 exit_code;
    u8 signal, core_dumped;
    u64 cgroup;
    char comm[COMM_BYTES];
    s64 cpu_us, user_us, system_us, peak_rss, minor_faults, major_faults, read_bytes, written_bytes;
    s64 read_bytes_with_children, written_bytes_with_children;
    u64 sender_start_ns;
    u32 sender_pid;
    char sender_comm[COMM_BYTES];
    u32 pad;
};
_Static_assert(sizeof(struct exit_record) == 168, "sysmond/tasks/tables.py, EXITS, behind 8 of the ring buffer");

/* A process that ended by a signal of one that is none of its ancestors, behind 8 of the ring buffer: restricted. */
struct kill_record {
    u64 end_ns, sender_start_ns;
    u32 pid, uid, sender_pid, sender_uid;
    char comm[COMM_BYTES], sender_comm[COMM_BYTES];
    u32 signal, pad;
};
_Static_assert(sizeof(struct kill_record) == 72, "sysmond/tasks/ends/kills.py");

struct state_record {
    u64 start_ns;
    u32 pid, tid, uid;
    s32 syscall;
    u64 cgroup;
    char comm[COMM_BYTES];
    char state, pad[7];
    char wait[WAIT_BYTES];
    s64 stack;
};
_Static_assert(sizeof(struct state_record) == 96, "sysmond/tasks/tables.py, THREAD_STATE");

/* A stack of the kernel, told once: the functions, innermost first, as many as there are. */
#define STACK_FRAMES 16
struct stack_record {
    s64 stack;
    char functions[STACK_FRAMES][WAIT_BYTES];
};
_Static_assert(sizeof(struct stack_record) == 520, "sysmond/tasks/bpf/states.py");

/* What is started, behind 8 of the ring buffer: restricted. A record ends with its texts, as long as they are. */
#define EXEC_HEAD_BYTES 24
struct exec_record {
    u64 start_ns;
    u32 pid, uid;
    u16 filename_bytes, arguments_bytes;
    u32 pad;
    /* The filename; arguments, each followed by NUL, the last perhaps cut. */
    char texts[FILENAME_BYTES + ARGUMENTS_BYTES];
};
_Static_assert(sizeof(struct exec_record) == EXEC_HEAD_BYTES + 768, "sysmond/tasks/command/execs.py");

/* A cgroup that is made, behind 8 of the ring buffer. A record ends with its path, as long as that is, with its NUL. */
#define CGROUP_HEAD_BYTES 8
struct cgroup_record {
    u64 number;
    char path[PATH_BYTES];
};
_Static_assert(sizeof(struct cgroup_record) == CGROUP_HEAD_BYTES + PATH_BYTES, "sysmond/tasks/cgroup_names.py");
