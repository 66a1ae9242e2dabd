# SPDX-License-Identifier: Apache-2.0
# What there is to run; each command first sets up what is missing.

# Only what the virtual environment holds counts, whatever the caller's shell has set.
unexport PYTHONPATH PYTHONHOME PYTHONSTARTUP VIRTUAL_ENV PYTEST_ADDOPTS
# Tests start hundreds of programs, each of which would compile what it imports anew.
unexport PYTHONDONTWRITEBYTECODE
export LC_ALL := C.UTF-8

BIN := .venv/bin
ARGS ?=

.NOTPARALLEL:
.PHONY: help setup bpf run test check-fast lint format types floors locks pytest check-all lock audit lab lab-kernels lab-service \
	package check-package release docs manuals \
	install-files benchmarks clean

help:
	@echo 'make run           record this machine until Ctrl-C; ARGS="--ticks 60" passes arguments'
	@echo 'make test          the checks that take minutes'
	@echo 'make check-fast    the checks that take seconds: style, types, floors'
	@echo 'make check-all     the checks that take longer: kill, crash, damage and starve everything; half an hour; FULL=1 at length'
	@echo 'make lab           boot a virtual machine and check there; ARGS="tests/lab/machine.py -k unit" checks less'
	@echo 'make lab-kernels   boot the kernels of Debian one after the other, and read by every way in each; 10 minutes'
	@echo 'make lab-service   boot a container with systemd and the installed service, and check that; 6 minutes; ARGS="-k acts" checks less'
	@echo 'make package       build the Debian packages into dist/; needs root, mmdebstrap and a mirror of Debian; ARGS="--release resolute": for Ubuntu 26.04'
	@echo 'make check-package build them twice, compare, ask lintian, install, boot, upgrade and purge; 5 minutes'
	@echo 'make release       all that, and sdist, wheel and checksums, into dist/'
	@echo 'make docs          write the generated documents anew'
	@echo 'make manuals       write manual pages and shell completions below build/share'
	@echo 'make install-files install what lies beside the programs (units, D-Bus, polkit, manuals) below DESTDIR'
	@echo 'make benchmarks    measure and write docs/performance.md; DATA=FILE.npz adds the storage benchmark'
	@echo 'make lock          pin every package that the project needs, with hashes; ARGS=--upgrade takes the newest'
	@echo 'make audit         ask whether what is pinned has known holes'
	@echo 'make setup         only set up .venv'
	@echo 'make bpf           compile the BPF programs, or say what is missing for that'
	@echo 'make clean         back to a fresh clone'

setup:
	@sh tools/setup.sh

# Where clang is, setting up compiles them; this says so, or what to install.
bpf:
	@sh tools/setup.sh bpf

run: setup
	@$(BIN)/sysmond $(ARGS)

# One failing check does not hide what the next would have said. In a fresh clone the types take most of a minute, and each
# worker would compile the modules of the tests for itself: so one processor does the one, and the other the other.
test: setup
	@fresh=; test -d .mypy_cache || fresh=yes; mkdir -p build; \
	$(MAKE) --no-print-directory types >build/types.log 2>&1 & types=$$!; \
	test -z "$$fresh" || $(BIN)/pytest --quiet --collect-only -p no:cacheprovider >build/compiled.log 2>&1; checks=0; \
	$(MAKE) --no-print-directory --keep-going lint format floors locks || checks=$$?; \
	$(MAKE) --no-print-directory pytest || checks=$$?; \
	wait $$types || checks=$$?; cat build/types.log; exit $$checks

check-fast: setup
	@$(MAKE) --no-print-directory --keep-going lint format types floors locks

lint:
	@$(BIN)/ruff check --quiet && echo 'lint: clean'

format:
	@$(BIN)/ruff format --check --quiet && echo 'format: clean' || { echo 'format: "ruff format" would change files'; exit 1; }

types:
	@$(BIN)/mypy

floors:
	@$(BIN)/lint-imports --no-logo

locks:
	@$(BIN)/python -P tools/locks.py check

# What looks after the locks needs more than what they are for.
TOOLS = .venv/tools
$(TOOLS)/made: locks/tools.txt | setup
	@$(BIN)/python -m venv --clear $(TOOLS)
	@$(TOOLS)/bin/python -m pip --disable-pip-version-check install --quiet --no-input --require-hashes -r locks/tools.txt
	@touch $@

lock: $(TOOLS)/made
	@$(BIN)/python -P tools/locks.py write $(ARGS)

audit: $(TOOLS)/made
	@$(BIN)/python -P tools/locks.py audit

# More workers than processors: most tests wait. What runs beside what is decided by tests/support/order.py.
WORKERS ?= 5
# What fails beside others is run once more by itself, and named.
PYTEST = $(BIN)/python -P tools/unsteady.py --quiet --numprocesses=$(WORKERS)
pytest:
	@$(PYTEST) -m 'not long' $(ARGS)

# Programs that break things, each with as many rounds as half an hour has room for; all of its rounds with FULL=1.
FAULTS := upgrade clocks damage:300 hostile:200 crash_matrix crowd:2000 disk_trouble power_cut kill_loop:60
# One that fails does not hide what the next would have said.
check-all: setup
	@failed=; HYPOTHESIS_PROFILE=all $(PYTEST) -m 'long or hypothesis' || failed=' pytest'; \
	for fault in $(FAULTS); do \
		program=$${fault%:*}; rounds=$${fault#$$program}; \
		$(BIN)/python -P tests/faults/$$program.py $(if $(FULL),,$${rounds:+--rounds $${rounds#:}}) $(ARGS) || failed="$$failed $$program"; \
	done; test -z "$$failed" || { echo "check-all: failed:$$failed"; exit 1; }

# With a kernel, a systemd and controllers of cgroups that the machine of a developer may not have.
lab: setup
	@$(BIN)/python -P tests/lab/lab.py $(ARGS)

# Whoever touches bpf/ runs it: what one verifier takes the next refuses.
lab-kernels: setup
	@$(BIN)/python -P tests/lab/kernels.py $(ARGS)

# With each part as a unit of its own. Whoever touches etc/systemd runs it.
lab-service: setup
	@$(BIN)/python -P tests/lab/service.py $(ARGS)
# In a Debian of their own, which is made once in some minutes: neither is part of the doors that CI takes.
package:
	@python3 -P tests/packaging/package.py $(ARGS)

check-package: setup
	@$(BIN)/python -P tests/packaging/package.py --check $(ARGS)

# From the files that git knows, checked; dates in them are that of the commit.
release: setup
	@rm -rf dist build/release && mkdir -p dist build/release
	@$(MAKE) --no-print-directory check-package
	@git ls-files -z | xargs -0 cp --parents -t build/release --
	@cd build/release && SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) ../../$(BIN)/python -c \
		'from setuptools import build_meta as build; build.build_sdist("../../dist"); build.build_wheel("../../dist")' >../release.log
	@cd dist && sha256sum -- * >SHA256SUMS && cat SHA256SUMS

docs: setup
	@$(BIN)/python docs/generate.py

# What builds a package has all it needs, and no virtual environment: SETUP= BIN=/usr/bin.
SETUP ?= setup
manuals: $(SETUP)
	@$(BIN)/python3 -m docs.manuals

# What a package installs beside the Python programs. What exists in /etc stays as it is.
PREFIX ?= /usr
# The one that has sysmond's packages: units start it with -I.
INTERPRETER ?= $(PREFIX)/bin/python3
SHARE = $(DESTDIR)$(PREFIX)/share
install-files: manuals
	@install -D -m 644 -t '$(SHARE)/dbus-1/interfaces' dbus/*.xml
	@install -D -m 644 -t '$(SHARE)/dbus-1/system.d' dbus/*.conf
	@install -D -m 644 -t '$(SHARE)/polkit-1/actions' dbus/*.policy
	@install -D -m 644 -t '$(SHARE)/sysmond' etc/sysmond.schema.json
	@install -D -m 644 -t '$(SHARE)/dbus-1/system-services' dbus/*.service
	@install -D -m 644 -t '$(DESTDIR)$(PREFIX)/lib/sysusers.d' etc/sysusers.d/*.conf
	@install -D -m 644 -t '$(DESTDIR)$(PREFIX)/lib/tmpfiles.d' etc/tmpfiles.d/*.conf
	@for unit in etc/systemd/*/*; do \
		target='$(DESTDIR)$(PREFIX)/lib/systemd/'"$${unit#etc/systemd/}"; \
		install -D -m 644 "$$unit" "$$target" && \
		sed -i -e 's,@PYTHON@,$(INTERPRETER),' -e 's,@BINDIR@,$(PREFIX)/bin,' "$$target"; done
	@test -e '$(DESTDIR)/etc/sysmond/sysmond.yaml' || install -D -m 644 -t '$(DESTDIR)/etc/sysmond' etc/sysmond.yaml
	@cp -R build/share/. '$(SHARE)'

# Writes docs/performance.json and the table in docs/performance.md; storage needs recorded data.
benchmarks: setup
	@$(BIN)/python benchmarks/run.py $(if $(DATA),--data '$(DATA)') $(ARGS)

clean:
	rm -rf .venv build dist *.egg-info sysmond/tasks/bpf/*/*.bpf.o .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
