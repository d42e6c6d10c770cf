"""Worker processes that grade with a time limit and a limit of memory."""
import multiprocessing
import os
import resource
import sys
import threading
import time
import warnings

MEMORY = 3 << 30
# Forked workers have the graders' packages loaded.
PROCESSES = multiprocessing.get_context("fork")


def work(pipe, make, argument):
    """Answers (name, row) with (verdict, problem, seconds) until the pipe closes."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    warnings.simplefilter("ignore")
    sys.stdout = sys.stderr = open(os.devnull, "w")
    sys.set_int_max_str_digits(100_000)
    graders = make(argument)
    pipe.send("ready")
    while True:
        try:
            name, row = pipe.recv()
        except EOFError:
            return
        began = time.perf_counter()
        try:
            verdict, problem = bool(graders[name][2](row)), None
        except BaseException as error:  # The reference's own failure is its verdict.
            verdict, problem = False, type(error).__name__
        pipe.send((verdict, problem, time.perf_counter() - began))


class Worker:
    """A process that is replaced when it exceeds the limit or dies."""

    def __init__(self, make, argument, limit):
        self.make, self.argument, self.limit, self.process = make, argument, limit, None

    def start(self):
        self.pipe, theirs = PROCESSES.Pipe()
        self.process = PROCESSES.Process(target=work, args=(theirs, self.make, self.argument), daemon=True)
        self.process.start()
        theirs.close()
        if not self.pipe.poll(120) or self.pipe.recv() != "ready":
            sys.exit("a worker did not start within 120 s; run the graders once without workers to see why")

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.join()
            self.pipe.close()
            self.process = None

    def grade(self, name, row):
        """Returns (verdict, problem, seconds); the problem is "timeout" after the limit."""
        if self.process is None:
            self.start()
        try:
            self.pipe.send((name, row))
            if self.pipe.poll(self.limit):
                return self.pipe.recv()
            problem = "timeout"
        except (EOFError, OSError):
            problem = "died"
        self.stop()
        return False, problem, float(self.limit)


def grade_all(tasks, make, argument, limit, workers):
    """Grades every (name, row) in order of the list; returns the results in the same order."""
    results, places, lock = [None] * len(tasks), iter(range(len(tasks))), threading.Lock()
    make(argument)

    def run():
        worker = Worker(make, argument, limit)
        while True:
            with lock:
                place = next(places, None)
            if place is None:
                return worker.stop()
            if place % 1000 == 0:
                print(f"{place} of {len(tasks)} grades", flush=True)
            results[place] = worker.grade(*tasks[place])

    threads = [threading.Thread(target=run) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
