#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Make this machine a sender, the router or the receiver of a run across machines. Vagrant calls it
# as root, on every Debian or Ubuntu it can be called by hand; a second call changes nothing.
set -euo pipefail

usage='Usage: provision.sh install ROLE
       provision.sh network ROLE [RATE [QUEUE]]

  install  install the mltcp command from /opt/mltcp and, on a sender, the kernel module by DKMS
  network  set routes and offloads and, on the router, forwarding and the bottleneck (RATE and QUEUE
           as tc takes them, by default 200mbit and 30kb); lasts until the next boot

ROLE is sender, router or receiver.'

source_folder=/opt/mltcp
venv=/opt/mltcp-venv
state=/var/lib/mltcp-provision
senders=192.168.57
receivers=192.168.58

fail() {
	echo "provision.sh: $*" >&2
	exit 3
}

install_packages() {
	local package missing=()
	for package; do
		dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed ||
			missing+=("$package")
	done
	((${#missing[@]})) || return 0
	echo "provision.sh: installing ${missing[*]}"
	export DEBIAN_FRONTEND=noninteractive
	apt-get -qq update </dev/null
	apt-get -qq install -y --no-install-recommends "${missing[@]}" </dev/null >/dev/null
}

# Whether the files named have other contents than when this state was last noted.
changed() {
	local name=$1 now
	shift
	now=$(cat "$@" | sha256sum)
	[[ $(cat "$state/$name" 2>/dev/null) != "$now" ]] || return 1
	noted=$now
}

note() {
	mkdir -p "$state"
	echo "$noted" >"$state/$1"
}

# The kernel to have the module for: the running one, or where that is none of this system's (when
# an image is prepared in a chroot) the newest there is.
kernel() {
	local release
	release=$(uname -r)
	if [[ ! -d /lib/modules/$release ]]; then
		release=$(find /lib/modules -mindepth 1 -maxdepth 1 -printf '%f\n' | sort -V | tail -n 1)
	fi
	echo "$release"
}

install_module() {
	local release flavour
	release=$(kernel)
	flavour=$(sed -E 's/^[^-]*-([0-9]+-)?//' <<<"$release") # amd64, cloud-amd64, generic
	install_packages dkms gcc make libc6-dev
	if ! install_packages "linux-headers-$release"; then
		fail "there are no headers for this machine's kernel $release any more; run in it" \
			"\`apt-get install linux-image-$flavour linux-headers-$flavour\`, then" \
			"\`vagrant reload --provision\`."
	fi
	if changed module "$source_folder"/kmod/{*.[ch],Makefile,Kbuild,probe,dkms.conf} ||
		! modinfo -k "$release" tcp_mltcp >/dev/null 2>&1; then
		"$source_folder/kmod/dkms-install" --kernel "$release"
		note module
	fi
	modinfo -k "$release" -F version tcp_mltcp >/dev/null || fail "DKMS did not install tcp_mltcp."
}

install_tools() {
	install_packages python3-venv python3-dev iproute2 kmod procps openssh-client
	# The part of pyproject.toml that decides what is installed.
	if changed tools <(sed '/^\[tool/,$d' "$source_folder/pyproject.toml") ||
		[[ ! -x $venv/bin/mltcp ]]; then
		echo "provision.sh: installing the Python packages"
		[[ -x $venv/bin/python ]] || python3 -m venv "$venv"
		# Editable: what Vagrant synchronises is what runs.
		"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --editable "${source_folder}[report]"
		note tools
	fi
	ln -sfn "$venv/bin/mltcp" /usr/local/bin/mltcp
	mltcp --version
}

# The interface that has an address in the network $1.
interface() {
	local name
	name=$(ip -o -4 address show | awk -v net="$1." 'index($4, net) == 1 { print $2; exit }')
	[[ -n $name ]] || fail "no interface has an address in $1.0/24; see vagrant/Vagrantfile."
	echo "$name"
}

# Packets on the wire are to be what the queue sees: no segments joined to larger ones.
switch_off_offloads() {
	ethtool -K "$1" tso off gso off gro off
}

set_network() {
	local role=$1 rate=$2 queue=$3 near far
	install_packages iproute2 ethtool
	case $role in
	router)
		near=$(interface "$senders")
		far=$(interface "$receivers")
		switch_off_offloads "$near"
		switch_off_offloads "$far"
		sysctl -qw net.ipv4.ip_forward=1
		tc qdisc replace dev "$far" root tbf rate "$rate" burst 20kb limit "$queue"
		# With this key it reaches the others, once vagrant/run has made them trust it.
		[[ -f /root/.ssh/id_ed25519 ]] || ssh-keygen -q -t ed25519 -N '' -f /root/.ssh/id_ed25519
		;;
	sender)
		near=$(interface "$senders")
		switch_off_offloads "$near"
		ip route replace "$receivers.0/24" via "$senders.254" dev "$near"
		;;
	receiver)
		near=$(interface "$receivers")
		switch_off_offloads "$near"
		ip route replace "$senders.0/24" via "$receivers.254" dev "$near"
		;;
	esac
}

case ${1-}:${2-} in
install:sender)
	install_module
	install_tools
	;;
install:router | install:receiver)
	install_tools
	;;
network:sender | network:router | network:receiver)
	set_network "$2" "${3:-200mbit}" "${4:-30kb}"
	;;
*)
	echo "$usage" >&2
	exit 2
	;;
esac
