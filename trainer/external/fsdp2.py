#!/usr/bin/env python3
"""Trains one policy of dyad with PyTorch's FSDP2, in place of the built-in trainer.

dyad starts it as agents.NAME.train.command says, for example:

    ["torchrun", "--nproc-per-node", "8", "trainer/external/fsdp2.py"]

It connects to the Unix socket that DYAD_TRAINER names and speaks the protocol of trainer/README.md
("An external trainer"): each line is a JSON object, a command of dyad or the reply to it. Rank 0 has
the connection and passes each command on; all ranks run it together. GPUs use NCCL, CPUs Gloo.
Masters, gradients and AdamW are f32 and split among the ranks. Any failure ends all ranks. dyad then
starts them again from the newest checkpoint.

It needs torch 2.11, numpy and safetensors. Without torchrun it is one rank.
"""

import ctypes
import json
import math
import os
import select
import signal
import socket
import sys
import threading
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from safetensors import safe_open
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import distribute_tensor
from torch.utils.checkpoint import checkpoint

PROTOCOL = 1
# Differences of log-probs are clamped to this size, so that their exponentials stay finite.
LIMIT = 20.0
# The number of logits in a chunk of tokens, by device: 16 MiB and 1 GiB in f32. A CPU maps larger
# blocks again each time; a GPU reads the whole matrix for each chunk (trainer/src/loss/head.rs).
# The backward pass computes them again.
CHUNKS = {"cpu": 1 << 22, "cuda": 1 << 28}
# The ranks wait so long for a command: dyad may have nothing to train for days.
IDLE = timedelta(days=30)
SAFETENSORS = {torch.float32: "F32", torch.bfloat16: "BF16"}


# --- the model: Qwen3, Qwen2, Llama ---------------------------------------------------------------


class Norm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.empty(width)), eps

    def forward(self, x):
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x.dtype)


class Attention(nn.Module):
    def __init__(self, shape):
        super().__init__()
        hidden, self.dim = shape["hidden"], shape["head_dim"]
        self.heads, self.kv_heads = shape["heads"], shape["kv_heads"]
        own, shared, biases = self.heads * self.dim, self.kv_heads * self.dim, shape["biases"]
        self.q_proj = nn.Linear(hidden, own, bias=biases["qkv"])
        self.k_proj = nn.Linear(hidden, shared, bias=biases["qkv"])
        self.v_proj = nn.Linear(hidden, shared, bias=biases["qkv"])
        self.o_proj = nn.Linear(own, hidden, bias=biases["output"])
        if shape["head_norms"]:
            self.q_norm, self.k_norm = Norm(self.dim, shape["rms_eps"]), Norm(self.dim, shape["rms_eps"])
        self.norms = shape["head_norms"]

    def forward(self, x, cos, sin):
        count, length, _ = x.shape
        split = lambda y, heads: y.view(count, length, heads, self.dim)
        q, k = split(self.q_proj(x), self.heads), split(self.k_proj(x), self.kv_heads)
        if self.norms:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k, v = turn(q, cos, sin), turn(k, cos, sin), split(self.v_proj(x), self.kv_heads)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        # Rows are padded at their ends. The causal mask hides the padding from all other tokens.
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.heads != self.kv_heads)
        return self.o_proj(y.transpose(1, 2).reshape(count, length, -1))


def turn(x, cos, sin):
    """Rotates heads to their positions, in pairs (i, i + dim / 2)."""
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


class Mlp(nn.Module):
    def __init__(self, shape):
        super().__init__()
        hidden, inner, bias = shape["hidden"], shape["intermediate"], shape["biases"]["mlp"]
        self.gate_proj = nn.Linear(hidden, inner, bias=bias)
        self.up_proj = nn.Linear(hidden, inner, bias=bias)
        self.down_proj = nn.Linear(inner, hidden, bias=bias)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.input_layernorm = Norm(shape["hidden"], shape["rms_eps"])
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = Norm(shape["hidden"], shape["rms_eps"])
        self.mlp = Mlp(shape)

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Trunk(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.embed_tokens = nn.Embedding(shape["vocab"], shape["hidden"])
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape["layers"]))
        self.norm = Norm(shape["hidden"], shape["rms_eps"])


class Policy(nn.Module):
    """A model with Hugging Face's names of parameters."""

    def __init__(self, shape, rope, recompute, device):
        super().__init__()
        self.model, self.recompute = Trunk(shape), recompute
        self.lm_head = None if shape["tied"] else nn.Linear(shape["hidden"], shape["vocab"], bias=False)
        self.rope, self.chunk = rope, max(1, CHUNKS[device.type] // shape["vocab"])

    def forward(self, micro):
        """Returns the log-probs and entropies of the micro-batch's trained tokens."""
        x = self.model.embed_tokens(micro["ids"])
        cos, sin = self.tables(x)
        for layer in self.model.layers:
            x = checkpoint(layer, x, cos, sin, use_reentrant=False) if self.recompute else layer(x, cos, sin)
        states = self.model.norm(x).flatten(0, 1).index_select(0, micro["at"])
        columns = (states, micro["targets"], micro["temperature"])
        chunks = zip(*(column.split(self.chunk) for column in columns))
        parts = [checkpoint(self.head, *chunk, use_reentrant=False) for chunk in chunks]
        return tuple(torch.cat(column) for column in zip(*parts))

    def head(self, states, targets, temperature):
        matrix = self.model.embed_tokens.weight if self.lm_head is None else self.lm_head.weight
        logits = states.float() @ matrix.float().T / temperature[:, None]
        logp = logits.log_softmax(-1)
        return logp.gather(-1, targets[:, None])[:, 0], -(logp.exp() * logp).sum(-1)

    def tables(self, x):
        frequencies = torch.tensor(self.rope["frequencies"], dtype=torch.float32)
        angles = torch.arange(x.shape[1], dtype=torch.float32).outer(frequencies)
        angles = torch.cat((angles, angles), -1)
        tables = (angles.cos() * self.rope["amplitude"], angles.sin() * self.rope["amplitude"])
        return [table.to(x.device, x.dtype)[:, None] for table in tables]


# --- the loss -------------------------------------------------------------------------------------


def losses(loss, micro, logp, entropy, reference):
    """Returns each trained token's loss, without its weight, as trainer/src/loss does in Rust."""
    if loss["kind"] == "cross_entropy":
        return -logp
    term = surrogate(loss["surrogate"], logp, micro["old"], micro["advantage"])
    if loss["behaviour_cap"] is not None:
        term = term * ratio(micro["old"], micro["behaviour"]).clamp(max=loss["behaviour_cap"])
    if loss["kl_coef"] != 0:
        term = term + loss["kl_coef"] * divergence(loss["kl"], logp, reference)
    return term - loss["entropy_coef"] * entropy


def numbers(column):
    """Returns the values as a list for JSON: None if they are not finite."""
    return [value if math.isfinite(value) else None for value in column.tolist()]


def ratio(logp, old):
    return (logp - old).clamp(-LIMIT, LIMIT).exp()


def surrogate(kind, logp, old, advantage):
    r = ratio(logp, old)
    if kind["kind"] == "clipped":
        term = -torch.minimum(r * advantage, r.clamp(1 - kind["low"], 1 + kind["high"]) * advantage)
        if kind["dual"] is None:
            return term
        return torch.where(advantage < 0, torch.minimum(term, -kind["dual"] * advantage), term)
    if kind["kind"] == "importance_sampling":
        return -r * advantage
    if kind["kind"] == "cispo":
        return -r.clamp(1 - kind["low"], 1 + kind["high"]).detach() * logp * advantage
    if kind["kind"] == "dro":
        return -(logp * advantage - kind["beta"] / 2 * (logp - old) ** 2)
    raise ValueError(f"this trainer has no surrogate {kind['kind']}")


def divergence(kind, logp, reference):
    d = reference - logp
    if kind == "k1":
        return -d
    if kind == "k2":
        return d * d / 2
    d = d.clamp(-LIMIT, LIMIT)
    return torch.expm1(d) - d


# --- files ----------------------------------------------------------------------------------------


class Files:
    """The tensors of a Hugging Face folder, in one file or in shards."""

    def __init__(self, folder):
        index = Path(folder) / "model.safetensors.index.json"
        single = Path(folder) / "model.safetensors"
        names = [single] if single.is_file() else [
            Path(folder) / name for name in sorted(set(json.loads(index.read_text())["weight_map"].values()))]
        self.place = {}
        for name in names:
            file = safe_open(name, "pt")
            self.place |= {key: file for key in file.keys()}

    def get(self, name):
        return self.place[name].get_tensor(name)


def write(path, entries, report):
    """Writes entries (name, tensor, dtype) to a safetensors file, one tensor at a time.

    All ranks must call it, because each gives its parts. Rank 0 writes.
    """
    first = dist.get_rank() == 0
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, tensor, dtype in entries:
        start, end = end, end + tensor.numel() * dtype.itemsize
        header[name] = {"dtype": SAFETENSORS[dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    if first:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        file = open(path, "wb")
        file.write(len(text).to_bytes(8, "little") + text)
    for _, tensor, dtype in entries:
        whole = tensor.full_tensor().detach()
        if first:
            file.write(whole.to(dtype).contiguous().cpu().view(torch.uint8).numpy().tobytes())
        report({"progress": 1})
    if first:
        file.close()


# --- the trainer ----------------------------------------------------------------------------------


class Trainer:
    def __init__(self, opened, device, report):
        self.report, self.device, self.ranks = report, device, dist.get_world_size()
        self.dtype = getattr(torch, opened["dtype"])
        self.budget, self.shape, self.rope = opened["micro_batch_tokens"], opened["shape"], opened["rope"]
        self.mesh = init_device_mesh(device.type, (self.ranks,))
        self.policy = self.make(opened["checkpoint_activations"], torch.float32)
        self.reference = None
        self.fill(self.policy, Files(opened["model"]))
        decays, named = set(opened["decays"]), list(self.policy.named_parameters())
        group = lambda own: {"params": [p for name, p in named if (name in decays) == own], "decays": own}
        self.optimizer = torch.optim.AdamW([group(True), group(False)])

    def make(self, recompute, dtype):
        """Returns a model of this shape, split among the ranks."""
        with torch.device("meta"):
            model = Policy(self.shape, self.rope, recompute, self.device).to(dtype)
        # Temperatures and targets stay as they are: 0.7 in bf16 is another temperature.
        mixed = MixedPrecisionPolicy(self.dtype, reduce_dtype=torch.float32, cast_forward_inputs=False)
        for layer in model.model.layers:
            fully_shard(layer, mesh=self.mesh, mp_policy=mixed)
        # Split again after each pass: between commands a rank has only its part of each parameter.
        fully_shard(model, mesh=self.mesh, mp_policy=mixed, reshard_after_forward=True)
        return model.to_empty(device=self.device)

    @torch.no_grad()
    def fill(self, model, files):
        for name, own in model.named_parameters():
            self.take(own, files.get(name))
            self.report({"progress": 1})

    def take(self, own, whole):
        """Copies this rank's part of a tensor that all ranks have."""
        whole = whole.to(self.device, own.dtype)
        own.copy_(distribute_tensor(whole, own.device_mesh, own.placements, src_data_rank=None))

    # A rank without a micro-batch computes an empty one: all ranks must exchange each layer.
    def micro_batches(self, rows):
        """Returns this rank's micro-batches: row indices, columns. All ranks get equally many."""
        order = sorted(range(len(rows)), key=lambda row: len(rows[row]["ids"]))
        packed = []
        for row in order:
            # Rows are padded to the longest. They are sorted, so that is the new one.
            if not packed or (len(packed[-1]) + 1) * len(rows[row]["ids"]) > self.budget:
                packed.append([])
            packed[-1].append(row)
        packed.sort(key=lambda batch: -len(batch) * len(rows[batch[-1]]["ids"]))
        own = packed[dist.get_rank()::self.ranks]
        passes = -(-len(packed) // self.ranks)
        return [(batch, self.columns([rows[row] for row in batch])) for batch in own + [[]] * (passes - len(own))]

    def columns(self, rows):
        rows = rows or [{"ids": [0], "at": [], "targets": [], "advantage": [], "old": [], "behaviour": [], "weight": [],
                         "temperature": []}]
        longest = max(len(row["ids"]) for row in rows)
        ids = [row["ids"] + [0] * (longest - len(row["ids"])) for row in rows]
        micro = {"ids": ids, "at": [place * longest + at for place, row in enumerate(rows) for at in row["at"]],
                 "targets": [target for row in rows for target in row["targets"]]}
        micro = {name: torch.tensor(values, dtype=torch.long, device=self.device) for name, values in micro.items()}
        for name in ("advantage", "old", "behaviour", "weight", "temperature"):
            values = [value for row in rows for value in row[name]]
            micro[name] = torch.tensor(values, dtype=torch.float32, device=self.device)
        micro["counts"] = [len(row["at"]) for row in rows]
        return micro

    def forward_backward(self, rows, loss):
        needs_reference = loss["kind"] == "policy" and loss["kl_coef"] != 0
        total, found = 0.0, {}
        for batch, micro in self.micro_batches(rows):
            reference = self.values(self.reference, micro)[0] if needs_reference else None
            logp, entropy = self.policy(micro)
            terms = micro["weight"] * losses(loss, micro, logp, entropy, reference)
            value = terms.sum()
            # FSDP takes the mean of the ranks' gradients, but the loss is a sum over ranks.
            (value * self.ranks).backward()
            total += terms.detach().double().sum().item()
            columns = [logp.detach(), entropy.detach()] + ([reference] if needs_reference else [])
            found |= self.by_row(batch, micro, columns)
            self.report({"progress": 1})
        found, totals = self.gather(found), self.gather({dist.get_rank(): total})
        columns = [[found[row][column] for row in range(len(rows))] for column in range(2 + needs_reference)]
        total = sum(totals.values())
        return {"reply": "loss", "loss": total if math.isfinite(total) else None, "logprobs": columns[0],
                "entropies": columns[1], "reference": columns[2] if needs_reference else []}

    def forward(self, rows, weights):
        model, found = self.policy if weights == "trained" else self.reference, {}
        for batch, micro in self.micro_batches(rows):
            found |= self.by_row(batch, micro, self.values(model, micro)[:1])
            self.report({"progress": 1})
        found = self.gather(found)
        return {"reply": "log_probs", "logprobs": [found[row][0] for row in range(len(rows))]}

    @torch.no_grad()
    def values(self, model, micro):
        return model(micro)

    def by_row(self, batch, micro, columns):
        parts = [[numbers(part) for part in column.split(micro["counts"])] for column in columns]
        return {row: [column[place] for column in parts] for place, row in enumerate(batch)}

    def gather(self, own):
        """Returns the entries of all ranks."""
        parts = [None] * self.ranks
        dist.all_gather_object(parts, own, group=dist.group.WORLD)
        return {key: value for part in parts for key, value in part.items()}

    @torch.no_grad()
    def optim_step(self, params):
        for p in self.policy.parameters():
            if p.grad is None:  # a batch without trained tokens
                p.grad = torch.zeros_like(p)
        grads = [p.grad for p in self.policy.parameters()]
        square = sum(grad.to_local().double().square().sum() for grad in grads)
        dist.all_reduce(square)
        norm = square.sqrt().item()
        skipped = not torch.isfinite(square).item()
        if not skipped:
            clip = params["clip_norm"]
            if clip > 0 and clip / (norm + 1e-6) < 1:
                torch._foreach_mul_(grads, clip / (norm + 1e-6))
            for group in self.optimizer.param_groups:
                group |= {"lr": params["lr"], "betas": (params["beta1"], params["beta2"]), "eps": params["eps"],
                          "weight_decay": params["weight_decay"] if group["decays"] else 0.0}
            self.optimizer.step()
        self.optimizer.zero_grad()
        return {"reply": "step", "grad_norm": None if skipped else norm, "skipped": skipped}

    def weights(self, model, dtype):
        return [(name, p, dtype) for name, p in model.named_parameters()]

    @torch.no_grad()
    def publish(self, folder, take_reference):
        if take_reference:
            self.reference = self.make(False, self.dtype)
            for own, source in zip(self.reference.parameters(), self.policy.parameters()):
                own.copy_(source)
            self.reference.requires_grad_(False)
        write(f"{folder}/model.safetensors", self.weights(self.policy, self.dtype), self.report)
        return {"reply": "published"}

    def moments(self):
        for prefix in ("exp_avg", "exp_avg_sq"):
            for name, p in self.policy.named_parameters():
                state = self.optimizer.state[p]
                if not state:
                    state["step"] = torch.tensor(0.0)
                    state |= {"exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}
                yield f"{prefix}.{name}", state[prefix]

    @torch.no_grad()
    def save(self, folder):
        moments = [(name, moment, torch.float32) for name, moment in self.moments()]
        write(f"{folder}/model.safetensors", self.weights(self.policy, torch.float32), self.report)
        write(f"{folder}/optimizer.safetensors", moments, self.report)
        if self.reference is not None:
            write(f"{folder}/reference/model.safetensors", self.weights(self.reference, self.dtype), self.report)
        return {"reply": "saved"}

    @torch.no_grad()
    def load(self, folder, steps, reference):
        self.fill(self.policy, Files(folder))
        with safe_open(f"{folder}/optimizer.safetensors", "pt") as file:
            for name, moment in self.moments():
                self.take(moment, file.get_tensor(name))
        for state in self.optimizer.state.values():
            state["step"].fill_(steps)
        self.optimizer.zero_grad()
        self.reference = None
        if reference:
            self.reference = self.make(False, self.dtype)
            self.fill(self.reference, Files(f"{folder}/reference"))
            self.reference.requires_grad_(False)
        return {"reply": "loaded"}


# --- the conversation -----------------------------------------------------------------------------


def end_with_launcher():
    """Ends this rank when torchrun ends: it starts ranks in sessions of their own."""
    if "TORCHELASTIC_RUN_ID" in os.environ and sys.platform == "linux":
        PR_SET_PDEATHSIG = 1
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def end_with(connection):
    """Ends this rank when dyad is gone, even in the middle of a command."""
    poll = select.poll()
    poll.register(connection, select.POLLRDHUP | select.POLLHUP)
    poll.poll()
    os._exit(1)


class Dyad:
    """The connection to dyad. Only rank 0 has one."""

    def __init__(self, path):
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(path)
        self.watch = threading.Thread(target=end_with, args=(connection,), daemon=True)
        self.lines, self.out = connection.makefile("r", encoding="utf-8"), connection.makefile("w", encoding="utf-8")

        self.watch.start()

    def say(self, message):
        self.out.write(json.dumps(message, allow_nan=False) + "\n")
        self.out.flush()

    def next(self):
        """Returns the next command, or None once the connection is closed."""
        line = self.lines.readline()
        return json.loads(line) if line.endswith("\n") else None


def run(trainer, command):
    kind = command["command"]
    if kind == "forward_backward":
        return trainer.forward_backward(command["rows"], command["loss"])
    if kind == "forward":
        return trainer.forward(command["rows"], command["weights"])
    if kind == "optim_step":
        return trainer.optim_step(command["params"])
    if kind == "publish":
        return trainer.publish(command["folder"], command["reference"])
    if kind == "save":
        return trainer.save(command["folder"])
    if kind == "load":
        return trainer.load(command["folder"], command["steps"], command["reference"])
    raise ValueError(f"this trainer has no command {kind}")


def main():
    end_with_launcher()
    path = os.environ.get("DYAD_TRAINER")
    if path is None:
        sys.exit("DYAD_TRAINER is not set: dyad starts this program, if agents.NAME.train.command names it")
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0"), ("MASTER_ADDR", "127.0.0.1"),
                        ("MASTER_PORT", "0")):
        os.environ.setdefault(name, value)
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
        # cuDNN's attention builds a plan for each new shape, and each micro-batch has one.
        torch.backends.cuda.enable_cudnn_sdp(False)
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    orders = dist.new_group(backend="gloo", timeout=IDLE)
    dyad = Dyad(path) if dist.get_rank() == 0 else None
    report = dyad.say if dyad else lambda _: None
    report({"hello": "fsdp2", "protocol": PROTOCOL, "ranks": dist.get_world_size()})
    trainer = None
    while True:
        order = [dyad.next() if dyad else None]
        dist.broadcast_object_list(order, 0, group=orders)
        command = order[0]
        if command is None or command["command"] == "end":
            break
        if command["command"] == "open":
            trainer = Trainer(command, device, report)
            report({"reply": "opened"})
        else:
            report({"seq": command["seq"], **run(trainer, command)})
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
