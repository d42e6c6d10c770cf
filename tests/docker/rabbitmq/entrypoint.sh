#!/bin/sh
# Does the same as the official image: the first user and vhost from the environment, logs to the
# console, not as root.
set -eu
mkdir -p /etc/rabbitmq/conf.d
{
    echo "log.console = true"
    echo "default_user = ${RABBITMQ_DEFAULT_USER:-guest}"
    echo "default_pass = ${RABBITMQ_DEFAULT_PASS:-guest}"
    echo "default_vhost = ${RABBITMQ_DEFAULT_VHOST:-/}"
} >/etc/rabbitmq/conf.d/10-environment.conf
chown -R rabbitmq:rabbitmq /var/lib/rabbitmq
exec setpriv --reuid rabbitmq --regid rabbitmq --init-groups "$@"
