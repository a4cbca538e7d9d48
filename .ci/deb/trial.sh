#!/bin/sh
# Installs, upgrades, removes and purges the package in a clean root, in which it runs as root. Prints what succeeded.
# Arguments: the package, and the same package with a higher version.
set -eu

package=$1 newer=$2
data=/var/lib/cx-service
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8

apt() {
    apt-get --quiet=2 --yes -o Dpkg::Use-Pty=0 "$@" >/tmp/apt.log 2>&1 || {
        tail -n 20 /tmp/apt.log >&2
        exit 1
    }
}
check() { # DESCRIPTION COMMAND ...: fails unless the command succeeds
    what=$1
    shift
    "$@" >/tmp/check.log 2>&1 || {
        echo "$what: failed: $*" >&2
        cat /tmp/check.log >&2
        exit 1
    }
}
tried() { echo "tried: $1"; }
user="setpriv --reuid=cx-service --regid=cx-service --clear-groups -- env HOME=$data"
as_service() { $user "$@"; }
mode() { stat --format='%a %U:%G' "$1"; }
users() { as_service cx-service user list; }
is_enabled() { test -L /etc/systemd/system/multi-user.target.wants/cx-service.service; }
ready() { # whether a request of the service at the address that it printed succeeds
    address=$(sed -n 's|.*listens on \(http://[^ ]*\).*|\1|p' /tmp/serve.log)
    [ -n "$address" ] && python3 -c "import urllib.request; urllib.request.urlopen('$address/readyz')" 2>/dev/null
}

apt install "$package"
check "folder of the data" test "$(mode $data)" = "700 cx-service:cx-service"
check "folder of the executable" test "$(mode /var/cache/cx-service)" = "700 cx-service:cx-service"
check "settings" test "$(mode /etc/cx-service.env)" = "600 root:root"
check "shell of the user" test "$(getent passwd cx-service | cut -d: -f6-)" = "$data:/usr/sbin/nologin"
check "unit" is_enabled
tried "install ($(. /etc/os-release && echo "$VERSION_CODENAME"), $(dpkg --print-architecture), $(python3 --version))"

check "--version of root" cx-service --version
check "--version" as_service cx-service --version
tried "--version"

$user cx-service serve --demo --port 0 2>/tmp/serve.log >/dev/null & # without a function, whose shell would not end
process=$!
trap 'kill -KILL $process 2>/dev/null || true' EXIT # otherwise mmdebstrap waits for it after an error
tries=0
until ready; do
    tries=$((tries + 1))
    if [ $tries -gt 300 ] || ! kill -0 $process; then
        cat /tmp/serve.log >&2
        exit 1
    fi
    sleep 1
done
kill -TERM $process
check "status of serve" wait $process
trap - EXIT
check "doctor" as_service cx-service doctor
check "database" test "$(mode $data/service.db)" = "600 cx-service:cx-service"
check "cache" test ! -e $data/.cache
tried "serve --demo"

before=$(users)
check "users of the demo" test "$(echo "$before" | grep -c @demo.example)" -gt 1
echo "CX_NAME=Example" >>/etc/cx-service.env
apt install "$newer"
check "version" test "$(dpkg-query --show --showformat='${Version}' cx-service)" = "$(dpkg-deb --field "$newer" Version)"
check "data after the upgrade" test "$(users)" = "$before"
check "settings after the upgrade" grep --quiet CX_NAME /etc/cx-service.env
check "unit after the upgrade" is_enabled
tried "upgrade, keeps data and settings"

apt remove cx-service
check "command after the removal" test ! -e /usr/bin/cx-service
check "data after the removal" test "$(mode $data/service.db)" = "600 cx-service:cx-service"
check "settings after the removal" grep --quiet CX_NAME /etc/cx-service.env
tried "remove, keeps data and settings"

apt purge cx-service
check "data after the purge" test "$(mode $data/service.db)" = "600 cx-service:cx-service"
check "settings after the purge" test ! -e /etc/cx-service.env
check "cache after the purge" test ! -e /var/cache/cx-service
check "unit after the purge" test ! -L /etc/systemd/system/multi-user.target.wants/cx-service.service
tried "purge without an answer, keeps data"

apt install "$package"
check "data after the installation" test "$(users)" = "$before"
tried "install again, uses the data"

# debconf asks on a terminal only, which `script` provides.
printf 'no\n' | script --quiet --return --command "DEBIAN_FRONTEND=teletype dpkg --purge cx-service" /tmp/purge.log >/dev/null
check "question" grep --quiet 'Delete all data of cx-service?' /tmp/purge.log
check "data after the purge" test "$(mode $data/service.db)" = "600 cx-service:cx-service"
tried "purge asks, keeps data with the answer no"

apt install "$package"
echo "cx-service cx-service/delete-data boolean true" | debconf-set-selections
apt purge cx-service
check "data after the purge" test ! -e $data
check "user after the purge" test -z "$(getent passwd cx-service)"
check "group after the purge" test -z "$(getent group cx-service)"
check "answer after the purge" test "$(debconf-show cx-service)" = ""
check "files of dpkg after the purge" test "$(ls /var/lib/dpkg/info | grep -c '^cx-service')" = 0
tried "purge with the answer yes, deletes data and user"
