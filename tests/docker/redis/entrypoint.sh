#!/bin/sh
# Does the same as the official image: data in /data, not as root.
set -eu
chown -R redis:redis /data
exec setpriv --reuid redis --regid redis --init-groups "$@"
