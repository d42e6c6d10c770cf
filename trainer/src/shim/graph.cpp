// CUDA graphs: the kernels of a decode step, recorded once and started again with one call.

#include <memory>
#include <stdexcept>

#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "guarded.hpp"

namespace {

// Starts kernels; returns 0 on success.
using Work = int(void* data);

void run(Work* work, void* data) {
  if (work(data) != 0) {
    throw std::runtime_error("the recorded work failed");
  }
}

// A stream of this thread for recording: nothing can be recorded on the default stream. libtorch
// keeps memory for each stream that multiplies matrices, so each thread has only one.
c10::cuda::CUDAStream side_stream(c10::DeviceIndex device) {
  thread_local std::unique_ptr<c10::cuda::CUDAStream> side;
  if (side == nullptr || side->device_index() != device) {
    side = std::make_unique<c10::cuda::CUDAStream>(c10::cuda::getStreamFromPool(false, device));
  }
  return *side;
}

void follow(const c10::cuda::CUDAStream& later, const c10::cuda::CUDAStream& earlier) {
  at::cuda::CUDAEvent reached;
  reached.record(earlier);
  reached.block(later);
}

// Puts two streams in order again, after a failure too: the work on the side may still read memory
// that is given to others next.
class Joined {
 public:
  Joined(const c10::cuda::CUDAStream& current, const c10::cuda::CUDAStream& side) : current_(current), side_(side) {
    follow(side, current);
  }

  ~Joined() {
    try {
      follow(current_, side_);
    } catch (...) {
      // CUDA itself has failed, and the next call reports it.
    }
  }

 private:
  const c10::cuda::CUDAStream current_;
  const c10::cuda::CUDAStream side_;
};

// Ends the recording in the allocator, if the graph has not. It holds a pointer to the graph, and
// every later allocation would read it after the graph is freed.
void forget(at::cuda::MempoolId_t pool) {
  const auto device = c10::cuda::current_device();
  try {
    c10::cuda::CUDACachingAllocator::endAllocateToPool(device, pool);
    c10::cuda::CUDACachingAllocator::releasePool(device, pool);
  } catch (...) {
    // The graph has ended it.
  }
}

void record(at::cuda::CUDAGraph& graph, at::cuda::MempoolId_t pool, Work* work, void* data) {
  bool begun = false;
  try {
    graph.capture_begin(pool, cudaStreamCaptureModeThreadLocal);
    begun = true;
    run(work, data);
    begun = false;
    graph.capture_end();
  } catch (...) {
    try {
      if (begun) {
        graph.capture_end();
      }
    } catch (...) {
      // The first failure is the one to report.
    }
    forget(pool);
    throw;
  }
}

} // namespace

// Runs `work` once, so that libraries set themselves up, then records it without running it. Other
// threads may use the GPU meanwhile. `sibling`, if not null, shares its memory: the two may not be
// replayed at the same time. On success returns 0, and the caller owns `*made`.
DYAD_EXPORT int dyad_graph_record(
    int device,
    at::cuda::CUDAGraph* sibling,
    Work* work,
    void* data,
    at::cuda::CUDAGraph** made,
    char* error,
    size_t room) noexcept {
  return dyad::guarded(error, room, [&] {
    const auto index = static_cast<c10::DeviceIndex>(device);
    const c10::cuda::CUDAGuard on(index);
    const auto current = c10::cuda::getCurrentCUDAStream(index);
    const auto side = side_stream(index);
    const Joined joined(current, side);
    auto graph = std::make_unique<at::cuda::CUDAGraph>();
    {
      const c10::cuda::CUDAStreamGuard recording(side);
      run(work, data);
      record(*graph, sibling == nullptr ? at::cuda::graph_pool_handle() : sibling->pool(), work, data);
    }
    *made = graph.release();
  });
}

// Starts the recorded kernels on the current stream.
DYAD_EXPORT int dyad_graph_replay(at::cuda::CUDAGraph* graph, char* error, size_t room) noexcept {
  return dyad::guarded(error, room, [&] { graph->replay(); });
}

DYAD_EXPORT void dyad_graph_free(at::cuda::CUDAGraph* graph) noexcept {
  delete graph;
}
