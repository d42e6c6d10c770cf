#!/usr/bin/env python3
"""Publish tasks to a run from Python: one JSON object a line, from standard input.

    export DYAD_BROKER=amqp://user:password@host:5672/vhost
    export DYAD_RUN=signal-2b707e80
    echo '{"id": "mine-1", "prompt": "o3", "label": "o3"}' | python3 tests/python/publish_task.py

Needs pika (pip install pika). Exit status 0: the broker holds every task. Anything else: publish the same lines again;
a task with the same id is done once.
"""

import json
import os
import sys

import pika


def publish(url, run, lines):
    """Sends each line as one task. Returns how many the broker confirmed."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        channel = connection.channel()
        # With confirms, basic_publish returns when the queue has the message on disk, and raises if it does not.
        channel.confirm_delivery()
        sent = 0
        for line in lines:
            if not line.strip():
                continue
            channel.basic_publish(
                exchange=f"dyad.{run}.tasks",
                routing_key=f"{run}.any.task.published",
                body=line.strip().encode(),
                properties=pika.BasicProperties(
                    content_type="application/json",
                    delivery_mode=pika.DeliveryMode.Persistent,
                    type="task.v1",
                    message_id=task_id(line),
                ),
                # Without this a message that no queue takes is confirmed and lost.
                mandatory=True,
            )
            sent += 1
        return sent
    finally:
        connection.close()


def task_id(line):
    """The task's own id, for the console. dyad reads the body itself, and refuses what is no task with a reason."""
    try:
        found = json.loads(line).get("id")
    except (ValueError, AttributeError):
        return None
    return found if isinstance(found, str) else None


def main():
    try:
        url, run = os.environ["DYAD_BROKER"], os.environ["DYAD_RUN"]
    except KeyError as missing:
        sys.exit(f"{missing.args[0]} is not set: see the top of this file")
    try:
        sent = publish(url, run, sys.stdin)
    except pika.exceptions.UnroutableError:
        sys.exit(f"no queue takes tasks for run {run}: is the run id right, and was the run started?")
    except pika.exceptions.NackError:
        sys.exit(f"the tasks queue of run {run} is full: wait and publish again")
    except pika.exceptions.ChannelClosedByBroker as closed:
        sys.exit(f"the broker refused: {closed.reply_text}")
    except pika.exceptions.AMQPConnectionError as error:
        sys.exit(f"cannot reach the broker: {error!r}")
    print(f"{sent} tasks confirmed by the broker for run {run}")


if __name__ == "__main__":
    main()
