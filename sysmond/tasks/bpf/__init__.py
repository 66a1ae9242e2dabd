# SPDX-License-Identifier: Apache-2.0
"""By BPF: programs that the loader pins once, and the sampler opens.

Comes in: compiled programs in a folder of each architecture, made of ``bpf/``. Goes out: pins and a report
(``bpf.json``) of the loader, a program that ends; arrays and ring buffers as memory, for ``walk``, ``states`` and
``buffers``. Called by ``daemon`` (``launch`` says how to start the loader) and by ``tasks.choose``.

``loader`` loads by ``libbpf`` and pins in the file system of ``bpffs``, ``refusals`` says why the kernel refused and
``report`` carries that on; ``pins`` opens them in the sampler.
"""
