// Flash attention over rows of unlike lengths, with the log-sum-exp of their logits.

#include <optional>

#include <ATen/core/Tensor.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <cuda_runtime_api.h>

#include "guarded.hpp"

// The number of this library's interface: see `guarded.hpp`.
DYAD_EXPORT int dyad_cuda_interface() noexcept {
  return 2;
}

// Returns 1 if the kernels of flash attention run on this GPU: they need compute capability 8.
DYAD_EXPORT int dyad_flash_serves(int device) noexcept {
  int major = 0;
  const auto asked = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  return asked == cudaSuccess && major >= 8 ? 1 : 0;
}

// Attends with one query of each row, `q` (`[rows, heads, head_dim]`, bf16), over the first
// `used[row]` keys from place `begins[row]` of `keys` and `values`
// (`[places, kv_heads, head_dim]`). `ends` is 0, 1, ..., rows. `begins` has one entry more than
// rows, because the kernel demands it. All three are i32. `longest` is the largest possible
// `used`. On success returns 0, and the caller owns `*out` and `*sums`.
DYAD_EXPORT int dyad_flash(
    const at::Tensor* q,
    const at::Tensor* keys,
    const at::Tensor* values,
    const at::Tensor* ends,
    const at::Tensor* begins,
    const at::Tensor* used,
    int64_t longest,
    at::Tensor** out,
    at::Tensor** sums,
    char* error,
    size_t room) noexcept {
  return dyad::guarded(error, room, [&] {
    auto made = at::_flash_attention_forward(
        *q,
        *keys,
        *values,
        *ends,
        *begins,
        /*max_q=*/1,
        longest,
        /*dropout_p=*/0.0,
        /*is_causal=*/false,
        /*return_debug_mask=*/false,
        /*scale=*/std::nullopt,
        /*window_size_left=*/std::nullopt,
        /*window_size_right=*/std::nullopt,
        *used);
    *out = new at::Tensor(std::get<0>(made));
    *sums = new at::Tensor(std::get<1>(made));
  });
}
