"""Worker processes that grade with a limit of processor time and of memory."""
import multiprocessing
import os
import resource
import signal
import sys
import threading
import time
import warnings

MEMORY = 3 << 30
# A grade that sleeps uses no processor time, so it may take this many limits.
WALL = 20
# Forked workers have the graders' packages loaded.
PROCESSES = multiprocessing.get_context("fork")
STARTING = threading.Lock()


def work(pipe, make, argument, limit):
    """Answers (name, row) with (verdict, problem, processor seconds) until the pipe closes."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    warnings.simplefilter("ignore")
    sys.stdout = sys.stderr = open(os.devnull, "w")
    sys.set_int_max_str_digits(100_000)
    graders = make(argument)
    pipe.send("ready")
    parent = os.getppid()
    while True:
        # Other workers hold copies of the pipe's far end, so its closing goes unseen.
        while not pipe.poll(5):
            if os.getppid() != parent:
                return
        try:
            name, row = pipe.recv()
        except EOFError:
            return
        # The signal ends the process, whatever the grader catches.
        signal.setitimer(signal.ITIMER_PROF, limit)
        began = time.process_time()
        try:
            verdict, problem = bool(graders[name][2](row)), None
        except BaseException as error:  # The reference's own failure is its verdict.
            verdict, problem = False, type(error).__name__
        seconds = time.process_time() - began
        signal.setitimer(signal.ITIMER_PROF, 0)
        pipe.send((verdict, problem, seconds))


class Worker:
    """A process that is replaced when it exceeds the limit or dies."""

    def __init__(self, make, argument, limit):
        self.make, self.argument, self.limit, self.process = make, argument, limit, None

    def start(self):
        # A worker forked meanwhile would keep this one's end open after its death.
        with STARTING:
            self.pipe, theirs = PROCESSES.Pipe()
            self.process = PROCESSES.Process(target=work, args=(theirs, self.make, self.argument, self.limit), daemon=True)
            self.process.start()
            theirs.close()
        if not self.pipe.poll(120) or self.pipe.recv() != "ready":
            sys.exit("a worker did not start within 120 s; run the graders once without workers to see why")

    def stop(self):
        """Ends the process; returns its exit code if it had ended by itself."""
        if self.process is None:
            return None
        self.process.join(0.5)
        code = self.process.exitcode
        self.process.kill()
        self.process.join()
        self.pipe.close()
        self.process = None
        return code

    def grade(self, name, row):
        """Returns (verdict, problem, seconds); the problem is "timeout" after the limit."""
        if self.process is None:
            self.start()
        try:
            self.pipe.send((name, row))
            if self.pipe.poll(WALL * self.limit):
                return self.pipe.recv()
        except (EOFError, OSError):
            pass
        ended = self.stop()
        return False, "timeout" if ended in (None, -signal.SIGPROF) else "died", float(self.limit)


def grade_all(tasks, make, argument, limit, workers, keep):
    """Grades every place -> (name, row) and calls `keep(place, result)` for each, one call at a time."""
    todo, lock, done = iter(tasks.items()), threading.Lock(), [0]
    make(argument)

    def run():
        worker = Worker(make, argument, limit)
        while True:
            with lock:
                place, task = next(todo, (None, None))
            if task is None:
                return worker.stop()
            result = worker.grade(*task)
            with lock:
                keep(place, result)
                done[0] += 1
                if done[0] % 1000 == 0:
                    print(f"{done[0]} of {len(tasks)} grades", flush=True)

    threads = [threading.Thread(target=run) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
