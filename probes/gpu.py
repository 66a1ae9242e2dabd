# SPDX-License-Identifier: Apache-2.0
"""Graphics cards: how busy they are, their frequency and memory, as their drivers tell in sysfs.

Source: ``sysmond/sources/drm.py`` names the documents of each driver. Nothing is opened of a card that sleeps.
"""

from sysmond.probe import Answers, Derived, Lane, Probe, Table, counter, gauge, hookimpl, state, text
from sysmond.sources import drm

INTERVAL_S = 5.0

GPU = Table(
    "gpu",
    per="card",
    doc="Graphics cards, by driver; if one driver has two, with the address of each on its bus."
    " Drivers report different things. A card that would fall asleep if left alone is asked again"
    " only after its autosuspend delay and a second; until then its last answer stands."
    " Temperature and power of cards not made by NVIDIA are in the tables temperature and power.",
    metrics=(
        text("driver", "The driver.", "device/driver"),
        text("address", "Its address on the bus, in the form of a client's drm-pdev.", "device"),
        gauge(
            "busy",
            "%",
            "Share of time in which it was busy.",
            0,
            "amdgpu gpu_busy_percent, devfreq load, NVML UtilizationRates",
        ),
        counter("busy_time", "s", "How long it rendered.", 9, "v3d gpu_stats render"),
        counter(
            "idle_time",
            "s",
            "How long it was idle and partly switched off.",
            3,
            "i915 rc6_residency_ms, xe gtidle/idle_residency_ms",
        ),
        gauge(
            "frequency",
            "Hz",
            "The frequency it runs at; 0 while it is switched off.",
            0,
            "amdgpu pp_dpm_sclk, i915 rps_act_freq_mhz, xe freq0/act_freq, devfreq cur_freq",
        ),
        gauge(
            "frequency_asked",
            "Hz",
            "The requested frequency, which power limits may prevent.",
            0,
            "i915 rps_cur_freq_mhz, xe freq0/cur_freq, devfreq target_freq",
        ),
        gauge(
            "frequency_max",
            "Hz",
            "The highest frequency allowed.",
            0,
            "amdgpu pp_dpm_sclk, i915 rps_max_freq_mhz, xe freq0/max_freq, devfreq max_freq",
        ),
        gauge(
            "memory_busy", "%", "Share of time in which its memory was read or written.", 0, "amdgpu mem_busy_percent"
        ),
        gauge("memory_frequency", "Hz", "The frequency of its memory.", 0, "amdgpu pp_dpm_mclk"),
        gauge("memory_used", "B", "Its own memory in use.", 0, "amdgpu mem_info_vram_used"),
        gauge("memory_total", "B", "Size of its own memory.", 0, "amdgpu mem_info_vram_total"),
        gauge("shared_used", "B", "Memory of the system that it uses.", 0, "amdgpu mem_info_gtt_used"),
        gauge("shared_total", "B", "Memory of the system that it may use.", 0, "amdgpu mem_info_gtt_total"),
        gauge("temperature", "°C", "Its temperature; NVIDIA only.", 0, "NVML Temperature"),
        gauge("power", "W", "Power it draws; NVIDIA only.", 3, "NVML PowerUsage"),
        state(
            "throttle",
            "NVIDIA only: why it is slower than it could be, as a sum: 0 it is not; 1 idle; 2 application"
            " setting; 4 power limit; 8 hardware slowdown; 16 kept in step with a group; 32 temperature;"
            " 64 temperature, by hardware; 128 power brake, by hardware; 256 display setting.",
            "NVML CurrentClocksEventReasons",
        ),
    ),
    answers=Answers(
        derived=(
            Derived("memory_percent", "%", "memory_used / memory_total * 100", "Share of its memory in use."),
            Derived(
                "busy_percent",
                "%",
                "100 - idle_time * 100",
                "Share of time in which it was not idle, for i915 and xe: an upper bound of its working time.",
            ),
            Derived("render_percent", "%", "busy_time * 100", "Share of time in which it rendered, for v3d."),
        )
    ),
)


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``gpu``."""
    read = drm.Cards(tuple(metric.name for metric in GPU.metrics)).read
    needs = (f"{drm.FOLDER}/card*", f"{drm.NVIDIA}/*")
    return [Probe(GPU, read, INTERVAL_S, Lane.BACKGROUND, subsystems=("drm",), needs=needs)]
