#!/usr/bin/env python3
"""Publishes tasks to a run from Python.

    export DYAD_BROKER=amqp://user:password@host:5672/vhost DYAD_RUN=signal-2b707e80
    python3 tests/python/publish_task.py o3 o3              # one task: its prompt and its label
    python3 tests/python/publish_task.py < tasks.jsonl      # one JSON object a line

Needs pika (pip install pika). With exit status 0 the broker holds every task. With any other status
publish the same tasks again; a run plays the same task once.
"""

import json
import os
import sys

import pika


def publish(url, run, tasks):
    """Publishes each body (bytes) as one task. Returns how many the broker confirmed."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        channel = connection.channel()
        # With confirms, basic_publish returns when the queue has the message on disk, and raises if
        # it does not.
        channel.confirm_delivery()
        sent = 0
        for body in tasks:
            channel.basic_publish(
                exchange=f"dyad.{run}.tasks",
                routing_key=f"{run}.any.task.published",
                body=body,
                properties=pika.BasicProperties(
                    content_type="application/json",
                    delivery_mode=pika.DeliveryMode.Persistent,
                    type="task.v1",
                ),
                # Without this a message that no queue takes is confirmed and lost.
                mandatory=True,
            )
            sent += 1
        return sent
    finally:
        if connection.is_open:
            connection.close()


def main():
    if len(sys.argv) == 3:
        tasks = [json.dumps({"prompt": sys.argv[1], "label": sys.argv[2]}).encode()]
    elif len(sys.argv) == 1:
        # Any line is sent: dyad moves lines that are no task to the dead letters, with the reason.
        tasks = (line.strip() for line in sys.stdin.buffer if line.strip())
    else:
        sys.exit(__doc__)
    try:
        url, run = os.environ["DYAD_BROKER"], os.environ["DYAD_RUN"]
        sent = publish(url, run, tasks)
    except KeyError as missing:
        sys.exit(f"{missing.args[0]} is not set: see the top of this file")
    except pika.exceptions.UnroutableError:
        sys.exit(f"no queue takes tasks for run {run}: was the run started?")
    except pika.exceptions.NackError:
        sys.exit(f"the tasks queue of run {run} is full: wait and publish again")
    except pika.exceptions.ChannelClosedByBroker as closed:
        sys.exit(f"the broker refused: {closed.reply_text}")
    except pika.exceptions.AMQPConnectionError as error:
        sys.exit(f"cannot reach the broker: {error!r}")
    print(f"{sent} tasks confirmed by the broker for run {run}")


if __name__ == "__main__":
    main()
