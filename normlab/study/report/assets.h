#pragma once
// The files of the report page, embedded when normlab is built (cmake/embed_assets.cmake).

#include <string_view>

namespace normlab::assets {

extern const std::string_view kPage, kStyle, kScript;
extern const std::string_view kChartScript;  // Chart.js, with the notice of its licence at the top

}  // namespace normlab::assets
