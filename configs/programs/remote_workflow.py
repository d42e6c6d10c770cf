"""solve-verify, and a grader for it, as a participant over RabbitMQ.

Use kind = "remote:NAME" under [workflow] or [graders.NAME]. Needs pip install pika.

    DYAD_BROKER=amqp://... DYAD_RUN=THE-RUN python3 remote_workflow.py NAME

Questions and answers are those of programs (solve_verify.py, reward.py). Start any number of
copies: they share the work, and another copy receives the questions that a dead copy did not ack. A
copy keeps no state, so it may receive the same question again.
"""
import json, os, re, sys, time  # noqa: E401
import pika


def right(text, task):
    return float(re.findall(r"-?\d+", text)[-1:] == [str(task["label"])])


def step(task, said):
    prompt = task["prompt"]
    if "solver" not in said:
        return {"ask": [{"role": "solver", "prompt": prompt}]}
    if "verifier" not in said:
        return {"ask": [{"role": "verifier", "prompt": f"{prompt}{said['solver']}?"}]}
    words = [word for word in ("approve", "reject") if re.search(rf"\b{word}\b", said["verifier"].lower())]
    rejected, s1 = words == ["reject"], right(said["solver"], task)
    if rejected and "retry" not in said:
        return {"ask": [{"role": "retry", "prompt": f"{prompt}{said['solver']}!{said['verifier']}"}]}
    s2 = right(said["retry"], task) if rejected else s1
    check = {"verdict": float(len(words) == 1 and rejected == (s1 < 0.5)), "gain": s2 - s1}
    parts = {"solver": {"correct": s1}, "verifier": check, "retry": {"correct": s2, "gain": s2 - s1}}
    rewards = [{"role": role, "parts": parts[role]} for role in said]
    return {"done": {"rewards": rewards, "metrics": {"success": s2, "solver_first": s1, "retry_rate": float(rejected)}}}


def on_question(channel, delivery, properties, body):
    asked = json.loads(body)
    try:
        said = {event["role"]: event["text"] for event in asked.get("events", ())}
        grades = asked["kind"] == "grade"
        answer = {"reward": right(asked["text"], asked["task"])} if grades else step(asked["task"], said)
    except Exception as error:  # dyad asks again after a failure; it never becomes a 0
        answer = {"error": f"{type(error).__name__}: {error}"}
    to, durable = properties.headers, pika.BasicProperties(correlation_id=properties.correlation_id, delivery_mode=2)
    try:
        channel.basic_publish(to["answer_exchange"], to["answer_key"], json.dumps({"id": asked["id"], **answer}), durable, mandatory=True)
    except pika.exceptions.UnroutableError:
        pass  # the coordinator that asked has ended; its successor asks again
    channel.basic_ack(delivery.delivery_tag)


while True:
    try:
        with pika.BlockingConnection(pika.URLParameters(os.environ["DYAD_BROKER"])) as connection:  # closed before each new try
            channel = connection.channel()
            channel.confirm_delivery()
            channel.basic_qos(prefetch_count=8)
            channel.basic_consume(f"dyad.{os.environ['DYAD_RUN']}.{sys.argv[1]}.questions.v1", on_question)
            channel.start_consuming()
    except (pika.exceptions.AMQPError, OSError) as error:  # no broker yet, or no run yet
        print(f"trying again: {error!r}", file=sys.stderr)
        time.sleep(1)
