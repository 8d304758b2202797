// SPDX-License-Identifier: Apache-2.0
#include "cpu/cpu_ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace vireo::cpu {
namespace {

const HostLinear& host(const Linear& w) {
  return static_cast<const HostLinear&>(w);
}

int32_t index_at(Tensor t, int64_t r, int64_t c = 0) {
  return t.row<int32_t>(r)[c];
}

}  // namespace

void CpuOps::embed(const Linear& table, const Step& step, Tensor out) {
  const WeightMatrix& m = host(table).parts[0][0];
  for_rows(out.rows, out.cols, [&](int64_t r) {
    k_.from_bf16(m.data + index_at(step.ids, r) * m.out_stride, out.cols, out.row<float>(r));
  });
}

void CpuOps::normalize_pixels(Tensor bytes, const PixelScale& scale, Tensor out) {
  const int64_t per_channel = bytes.cols / 3;
  float table[3][256];
  for (int channel = 0; channel < 3; ++channel) {
    for (int v = 0; v < 256; ++v)
      table[channel][v] = (static_cast<float>(v) - scale.mean[channel]) / scale.std[channel];
  }
  for_rows(bytes.rows, bytes.cols, [&](int64_t r) {
    const uint8_t* from = bytes.row<uint8_t>(r);
    float* to = out.row<float>(r);
    for (int channel = 0; channel < 3; ++channel) {
      for (int64_t i = 0; i < per_channel; ++i) *to++ = table[channel][*from++];
    }
  });
}

void CpuOps::rms_norm(Tensor x, const Norm& norm, Tensor out) {
  const int64_t n = norm.weight.cols;
  for_rows(x.rows, x.cols, [&](int64_t r) {
    for (int64_t c = 0; c < x.cols; c += n) {
      k_.rms_norm(x.row<float>(r) + c, norm.weight.row<float>(0), n, norm.eps, out.row<float>(r) + c);
    }
  });
}

void CpuOps::layer_norm(Tensor x, const Norm& norm, Tensor out) {
  for_rows(x.rows, x.cols, [&](int64_t r) {
    k_.layer_norm(x.row<float>(r), norm.weight.row<float>(0), norm.bias.row<float>(0), x.cols, norm.eps,
                  out.row<float>(r));
  });
}

void CpuOps::rope_angles(Tensor positions, const RopeTable& table, Tensor cos_sin) {
  const int64_t n = table.inv_freq.cols;
  const float* inv_freq = table.inv_freq.row<float>(0);
  const int32_t* axis = table.axis.row<int32_t>(0);
  for_rows(positions.rows, 32 * n, [&](int64_t r) {
    for (int64_t j = 0; j < n; ++j) {
      const float angle = static_cast<float>(index_at(positions, r, axis[j])) * inv_freq[j];
      cos_sin.row<float>(r)[j] = std::cos(angle);
      cos_sin.row<float>(r)[n + j] = std::sin(angle);
    }
  });
}

void CpuOps::rope(Tensor x, Tensor cos_sin, int head_dim) {
  for_rows(x.rows, x.cols, [&](int64_t r) {
    for (int64_t c = 0; c < x.cols; c += head_dim) k_.rope(x.row<float>(r) + c, cos_sin.row<float>(r), head_dim / 2);
  });
}

void CpuOps::silu_mul(Tensor x, Tensor out) {
  for_rows(out.rows, 8 * out.cols,
           [&](int64_t r) { k_.silu_mul(x.row<float>(r), x.row<float>(r) + out.cols, out.cols, out.row<float>(r)); });
}

void CpuOps::gelu(Tensor x, Gelu kind) {
  for_rows(x.rows, 8 * x.cols, [&](int64_t r) {
    if (kind == Gelu::kTanh) {
      k_.gelu_tanh(x.row<float>(r), x.cols);
    } else {
      k_.gelu_erf(x.row<float>(r), x.cols);
    }
  });
}

void CpuOps::add(Tensor x, Tensor inout) {
  for_rows(x.rows, x.cols, [&](int64_t r) { k_.add(x.row<float>(r), x.cols, inout.row<float>(r)); });
}

void CpuOps::add_rows(Tensor x, Tensor index, Tensor inout) {
  for_rows(x.rows, x.cols, [&](int64_t r) { k_.add(x.row<float>(r), x.cols, inout.row<float>(index_at(index, r))); });
}

void CpuOps::put_rows(Tensor x, Tensor index, Tensor inout) {
  for_rows(x.rows, x.cols,
           [&](int64_t r) { std::copy_n(x.row<float>(r), x.cols, inout.row<float>(index_at(index, r))); });
}

void CpuOps::gather_rows(Tensor x, Tensor index, Tensor out) {
  for_rows(out.rows, x.cols,
           [&](int64_t r) { std::copy_n(x.row<float>(index_at(index, r)), x.cols, out.row<float>(r)); });
}

void CpuOps::add_positions(Tensor table, Tensor taps, Tensor weights, Tensor inout) {
  for_rows(inout.rows, 4 * inout.cols, [&](int64_t r) {
    const float* w = weights.row<float>(r);
    const bf16* e[4];
    for (int t = 0; t < 4; ++t) e[t] = table.row<bf16>(index_at(taps, r, t));
    for (int64_t c = 0; c < inout.cols; ++c) {
      inout.row<float>(r)[c] +=
          w[0] * to_float(e[0][c]) + w[1] * to_float(e[1][c]) + w[2] * to_float(e[2][c]) + w[3] * to_float(e[3][c]);
    }
  });
}

void CpuOps::sample(Tensor logits, const Step& step) {
  for_rows(logits.rows, logits.cols, [&](int64_t r) {
    const float* row = logits.row<float>(r);
    int32_t best = 0;
    bool finite = true;
    for (int64_t c = 0; c < logits.cols; ++c) {
      finite &= std::isfinite(row[c]);
      if (row[c] > row[best]) best = static_cast<int32_t>(c);
    }
    step.sampled.row<int32_t>(r)[0] = finite ? best : -1;
  });
}

void CpuOps::advance(const Step& step) {
  advance_host_step(step);
}

void CpuOps::route(Tensor logits, bool renormalize, Tensor ids, Tensor weights) {
  for_rows(logits.rows, 16 * logits.cols, [&](int64_t r) {
    const float* row = logits.row<float>(r);
    const float largest = *std::max_element(row, row + logits.cols);
    float total = 0, chosen = 0;
    for (int64_t e = 0; e < logits.cols; ++e) total += std::exp(row[e] - largest);
    int32_t* id = ids.row<int32_t>(r);
    float* weight = weights.row<float>(r);
    for (int64_t k = 0; k < ids.cols; ++k) {
      int32_t best = -1;
      for (int32_t e = 0; e < logits.cols; ++e) {
        if (std::find(id, id + k, e) == id + k && (best < 0 || row[e] > row[best])) best = e;
      }
      id[k] = best;
      weight[k] = std::exp(row[best] - largest) / total;
      chosen += weight[k];
    }
    for (int64_t k = 0; renormalize && k < ids.cols; ++k) weight[k] /= chosen;
  });
}

}  // namespace vireo::cpu
