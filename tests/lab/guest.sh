# SPDX-License-Identifier: Apache-2.0
# What the lab's machine does: lab.py puts this into the shared folder. Its output is what the host tells.
# From a copy: a machine that was suspended has lost the shared folder, and whoever has a file of it open waits for ever.
[ "$0" = /run/guest.sh ] || { cp /host/guest.sh /host/arguments /run && exec sh /run/guest.sh; }
export HOME=/root LC_ALL=C.UTF-8 PYTHONPATH=/opt/sysmond PYTHONUNBUFFERED=1
mkdir -p /opt/sysmond && tar -C /opt/sysmond -xf /host/package.tar
cd /opt/sysmond || exit
# Imports by tests go by the names of an installed package.
ln -sfn sysmond_probes probes
# A check that had the machine reset says what follows.
arguments=/run/arguments; [ ! -e /root/arguments ] || arguments=/root/arguments
mkswap --quiet /dev/vdc && swapon /dev/vdc
echo "lab: $(uname -sr), $(systemctl --version | head -n 1), $(python3 --version)"
eval "python3 -m pytest -p no:cacheprovider --color=no --tb=short --verbose $(cat $arguments)"
echo "lab: ended $?"
