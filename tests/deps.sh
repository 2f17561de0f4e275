#!/bin/sh
# Installs the Debian packages named as arguments that are missing. As root, or with sudo.
set -eu
missing=""
for p in "$@"; do
  dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing="$missing $p"
done
[ -n "$missing" ] || exit 0
sudo=""
if [ "$(id -u)" != 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "These packages are missing, and only root can install them:$missing" >&2
    exit 1
  fi
  sudo=sudo
fi
echo "installing:$missing"
# The list of packages may be old or empty: try with a fresh one.
$sudo apt-get update -qq
# shellcheck disable=SC2086
DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=300 $missing >/dev/null
