#pragma once
// The judge: every operation in float64, one thread, plain loops that read like the formulas of device.h.
// Used for central differences, for comparing other devices tensor by tensor, and never for speed.

#include <memory>

#include "normlab/kernels/device.h"

namespace normlab {

std::unique_ptr<Device> MakeReferenceDevice();

}  // namespace normlab
