#!/bin/sh
# usage: install_upstream.sh FOLDER PYTHON
# Makes FOLDER an environment with upstream Marin (about 2 GB). Where that can't be, FOLDER/why-not says why in one line.
folder=$1 python=$2
rm -rf "$folder" && mkdir -p "$folder" || exit 1

give_up() {
    echo "$1" > "$folder/why-not"
    echo "upstream Marin is not measured here: $1"
    exit 0
}

"$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 12))' 2> /dev/null || give_up "$python is no Python 3.12 that runs"
echo "Installing upstream Marin into $folder: about 2 GB, some minutes. UPSTREAM_PYTHON=none leaves it out."
"$python" -m venv "$folder" > "$folder/log" 2>&1 || give_up "$python -m venv failed, see $folder/log"
# Its dependencies are many and mostly pre-releases: pip takes an hour to choose among them, uv some seconds.
"$folder/bin/python" -m pip install --quiet 'uv>=0.5' >> "$folder/log" 2>&1 || give_up "uv can't be installed, see $folder/log"
VIRTUAL_ENV=$folder UV_NATIVE_TLS=1 UV_SYSTEM_CERTS=1 "$folder/bin/uv" pip install --no-cache --prerelease=allow 'marin-core[dedup]' \
    >> "$folder/log" 2>&1 || give_up "marin-core can't be installed, see $folder/log"
