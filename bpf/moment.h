/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* What a task is at, at this moment: its state, its system call, what it waits in. */
#pragma once

#include "core.h"
#include "records.h"

/* Where functions of the scheduler lie, which nobody waits in by himself; zero where the loader may not know. */
const volatile u64 scheduler_start = 0, scheduler_end = 0;
/* … and those of the kernel itself, whose places stay what they are. */
const volatile u64 kernel_start = 0, kernel_end = 0;
/*
 * Functions that are not static are verified once and by themselves: branches in them do not multiply those of their
 * callers. They take numbers and memory, no tasks.
 */

/* The letter of proc(5); as get_task_state() of fs/proc/array.c finds it. */
__noinline u32 letter_of(u32 state, u32 exit_state)
{
    u32 reported = (state | exit_state) & 0x7f;

    if ((state & 0x402) == 0x402)
        return 'I';
    if (state & 0x9000) /* Waits for a lock that may sleep; frozen. */
        return 'D';
    if (reported & 0x40)
        return 'P';
    if (reported & 0x20)
        return 'Z';
    if (reported & 0x10)
        return 'X';
    if (reported & 0x08)
        return 't';
    if (reported & 0x04)
        return 'T';
    if (reported & 0x02)
        return 'D';
    return reported & 0x01 ? 'S' : 'R';
}

static __always_inline char state_of(struct task_struct *task)
{
    u32 state;

    if (HAS(task->__state))
        state = task->__state;
    else
        state = PROBED(((struct task_struct___before_5_14 *)task), state);
    return letter_of(state, task->exit_state);
}

#define KERNEL_THREAD 0x00200000 /* PF_KTHREAD */

static __always_inline s32 syscall_of(struct task_struct *task, char state)
{
    struct pt_regs *registers;

    if (task->flags & KERNEL_THREAD || state == 'R' || state == 'Z' || state == 'X')
        return -1;
    registers = (void *)bpf_task_pt_regs(task);
    if (!registers)
        return -1;
#if defined(__TARGET_ARCH_x86)
    return (s32)PROBED(registers, orig_ax);
#elif defined(__TARGET_ARCH_arm64)
    return PROBED(registers, syscallno);
#else
    return -1;
#endif
}

static __always_inline u32 has_stack(char state)
{
    /* What runs is elsewhere by the time that its stack is read. */
    return state != 'R' && state != 'Z' && state != 'X';
}

/*
 * The task that a row of a pass is about, for what is asked once the pass is over: in a program that may sleep, newer
 * kernels give no stack where RCU is held, as an iterator wants it. Whoever gets one releases it.
 */
static __always_inline struct task_struct *task_of(u32 tid, u64 start_ns)
{
    struct task_struct *task = bpf_task_from_pid(tid);

    if (task && task->start_boottime != start_ns) { /* Another one has the number by now. */
        bpf_task_release(task);
        task = NULL;
    }
    return task;
}

#define FRAMES_MAX 8
struct frames {
    u64 of[FRAMES_MAX];
};

/* The first function that is not the scheduler's; zero where there is none. */
__noinline u64 awaited(struct frames *frames)
{
    if (!frames)
        return 0;
    for (int number = 0; number < FRAMES_MAX; number++)
        if (frames->of[number] < scheduler_start || frames->of[number] >= scheduler_end)
            return frames->of[number];
    return 0;
}

/* Names of functions that were asked for before: the kernel unpacks a name anew each time, for a microsecond. */
struct name {
    char of[WAIT_BYTES];
};
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 512);
    __type(key, u64);
    __type(value, struct name);
} names SEC(".maps");

static __always_inline void name_wait(char wait[WAIT_BYTES], struct frames *frames)
{
    static const char symbol[] = "%ps";
    struct name *name;
    u64 frame = scheduler_start ? awaited(frames) : 0;

    if (!frame)
        return;
    name = bpf_map_lookup_elem(&names, &frame);
    if (name) {
        __builtin_memcpy(wait, name, WAIT_BYTES);
        return;
    }
    bpf_snprintf(wait, WAIT_BYTES, symbol, &frame, sizeof(frame));
    if (frame >= kernel_start && frame < kernel_end) /* What a module left may be another's place later. */
        bpf_map_update_elem(&names, &frame, wait, 0);
}

static __always_inline void find_wait(char wait[WAIT_BYTES], struct task_struct *task)
{
    struct frames frames = {};

    if (has_stack(state_of(task)) && bpf_get_task_stack(task, &frames, sizeof(frames), 0) > 0)
        name_wait(wait, &frames);
}
