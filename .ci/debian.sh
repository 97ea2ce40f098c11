#!/usr/bin/env bash
# Installs what the tests of targets need on Debian or Ubuntu: emulators, Node.js, the boards' C libraries, an ssh server, readelf,
# llvm-mca and llvm-objdump (of any version).
# Does nothing when all is there. Where it can't install (no root, no apt-get), it says so: those tests are then not run.
set -uo pipefail
packages=(nodejs qemu-user-static libc6-arm64-cross libc6-armhf-cross openssh-client openssh-server binutils llvm)

present() {
  command -v qemu-aarch64-static qemu-arm-static qemu-riscv64-static node ssh readelf > /dev/null &&
    [ -d /usr/aarch64-linux-gnu/lib ] && [ -d /usr/arm-linux-gnueabihf/lib ] && [ -x /usr/sbin/sshd ] &&
    [ -n "$(compgen -c llvm-mca)" ] && [ -n "$(compgen -c llvm-objdump)" ]
}

present && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
  export DEBIAN_FRONTEND=noninteractive
  { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${packages[@]}"; } > /dev/null 2>&1
fi
present && exit 0
echo "NOT RUN: tests that need ${packages[*]}: they are not installed and can't be installed from here." >&2
echo "         As root: apt-get install ${packages[*]}" >&2
exit 0
