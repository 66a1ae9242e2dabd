# SPDX-License-Identifier: Apache-2.0
# What the lab's machine does: lab.py puts this into the shared folder. Its output is what the host tells.
export HOME=/root LC_ALL=C.UTF-8 PYTHONPATH=/opt/sysmond PYTHONUNBUFFERED=1
mkdir /opt/sysmond && tar -C /opt/sysmond -xf /host/package.tar
cd /opt/sysmond || exit
# Imports by tests go by the names of an installed package.
ln -s sysmond_probes probes
mkswap --quiet /dev/vdc && swapon /dev/vdc
echo "lab: $(uname -sr), $(systemctl --version | head -n 1), $(python3 --version)"
eval "python3 -m pytest -p no:cacheprovider --color=no --tb=short --verbose $(cat /host/arguments)"
echo "lab: ended $?"
