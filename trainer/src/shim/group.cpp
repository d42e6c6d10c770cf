// The C interface of c10d's groups for `group.rs`. No exception crosses it.
//
// A group has a Gloo member for tensors in host memory. With a GPU it has an NCCL member too, which
// `nccl.cpp` makes, in dyad's CUDA library.
//
// libtorch ships the headers and the code of c10d, but not the headers of Gloo. c10d's own header
// uses Gloo's types through pointers only, so the stubs in `gloo_stubs/` are enough. The virtual
// calls go through `c10d::Backend`: this file refers to no symbol of Gloo.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "guarded.hpp"

namespace {

using dyad::guarded;

struct Group {
  c10::intrusive_ptr<c10d::Store> store;
  c10::intrusive_ptr<c10d::Backend> host;
  // Null without a GPU.
  c10::intrusive_ptr<c10d::Backend> gpu;

  c10d::Backend& of(const at::Tensor* tensor) {
    const bool on_gpu = tensor != nullptr && tensor->is_cuda() && gpu != nullptr;
    return on_gpu ? *gpu : *host;
  }
};

// The type of `dyad_nccl_new` in nccl.cpp.
using NewNccl = int(c10d::Store*, int, int, int64_t, int, c10d::Backend**, char*, size_t);

// The numbers of `Operation` in group.rs.
enum Operation {
  AllReduce = 0,
  ReduceScatter = 1,
  AllGather = 2,
  Broadcast = 3,
  Barrier = 4,
};

c10::intrusive_ptr<c10d::Work> begin(
    c10d::Backend& backend,
    int operation,
    at::Tensor* out,
    at::Tensor* in,
    int root,
    std::chrono::milliseconds timeout) {
  std::vector<at::Tensor> one;
  if (out != nullptr) {
    one.push_back(*out);
  }
  switch (operation) {
    case AllReduce: {
      c10d::AllreduceOptions options;
      options.timeout = timeout;
      return backend.allreduce(one, options);
    }
    case ReduceScatter: {
      c10d::ReduceScatterOptions options;
      options.timeout = timeout;
      return backend._reduce_scatter_base(*out, *in, options);
    }
    case AllGather: {
      c10d::AllgatherOptions options;
      options.timeout = timeout;
      return backend._allgather_base(*out, *in, options);
    }
    case Broadcast: {
      c10d::BroadcastOptions options;
      options.rootRank = root;
      options.timeout = timeout;
      return backend.broadcast(one, options);
    }
    default: {
      c10d::BarrierOptions options;
      options.timeout = timeout;
      return backend.barrier(options);
    }
  }
}

c10::intrusive_ptr<c10d::Store> open_store(
    const char* file,
    const char* host,
    uint16_t port,
    int listener,
    int world_size,
    std::chrono::milliseconds timeout) {
  if (file != nullptr) {
    auto store = c10::make_intrusive<c10d::FileStore>(file, world_size);
    store->setTimeout(timeout);
    return store;
  }
  c10d::TCPStoreOptions options;
  options.port = port;
  options.numWorkers = world_size;
  options.waitWorkers = false;
  options.timeout = timeout;
  if (listener >= 0) {
    options.isServer = true;
    // Without a socket of its caller the store would listen on every address.
    options.masterListenFd = listener;
  }
  return c10::make_intrusive<c10d::TCPStore>(host, options);
}

} // namespace

extern "C" {

// Meets the other ranks at a store: in `file` if it is not null, else at `host`:`port`. The owner of
// `listener`, a listening socket there, holds that store; the others pass -1. On success `*group` is
// owned by the caller. It takes tensors in host memory, and none on a GPU.
int dyad_group_join(
    const char* file,
    const char* host,
    uint16_t port,
    int listener,
    const char* prefix,
    const char* address,
    int rank,
    int world_size,
    int64_t start_ms,
    int64_t timeout_ms,
    Group** group,
    char* error,
    size_t room) {
  return guarded(error, room, [&] {
    const std::chrono::milliseconds start(start_ms);
    auto store = c10::make_intrusive<c10d::PrefixStore>(
        prefix, open_store(file, host, port, listener, world_size, start));
    auto options = c10d::ProcessGroupGloo::Options::create(start);
    options->devices.push_back(
        c10d::ProcessGroupGloo::createDeviceForHostname(address));
    c10::intrusive_ptr<c10d::Backend> backend =
        c10::make_intrusive<c10d::ProcessGroupGloo>(
            c10::make_intrusive<c10d::PrefixStore>("gloo", store), rank, world_size, options);
    backend->setTimeout(std::chrono::milliseconds(timeout_ms));
    auto made = std::make_unique<Group>();
    made->host = std::move(backend);
    made->store = std::move(store);
    *group = made.release();
  });
}

// Adds the NCCL member for tensors on GPU `device`. NCCL chooses an interface itself, and its
// connections have no password: it stays on those that `interface` names, in NCCL's syntax. A value
// of the user's wins. All ranks make this call, or none.
int dyad_group_add_gpu(
    Group* group,
    NewNccl* new_nccl,
    const char* interface,
    int rank,
    int world_size,
    int64_t timeout_ms,
    int device,
    char* error,
    size_t room) {
  return guarded(error, room, [&] {
    setenv("NCCL_SOCKET_IFNAME", interface, 0);
    auto store = c10::make_intrusive<c10d::PrefixStore>("nccl", group->store);
    c10d::Backend* gpu = nullptr;
    char reason[512] = "";
    if (new_nccl(store.get(), rank, world_size, timeout_ms, device, &gpu, reason, sizeof(reason)) != 0) {
      throw std::runtime_error(reason);
    }
    group->gpu = c10::intrusive_ptr<c10d::Backend>::reclaim(gpu);
  });
}

// Runs one operation and waits for its end. The tensors outlive the call.
int dyad_group_run(
    Group* group,
    int operation,
    at::Tensor* out,
    at::Tensor* in,
    int root,
    int64_t timeout_ms,
    char* error,
    size_t room) {
  return guarded(error, room, [&] {
    begin(group->of(out), operation, out, in, root, std::chrono::milliseconds(timeout_ms))
        ->wait();
  });
}

void dyad_group_leave(Group* group) {
  guarded(nullptr, 0, [&] { delete group; });
}

} // extern "C"
