#pragma once
// report.html in the folder of a study: written at its end, and again and again while cells run.

#include <filesystem>
#include <functional>
#include <optional>

#include "normlab/study/report/page.h"
#include "normlab/study/runner.h"

namespace normlab {

inline constexpr const char* kReportFile = "report.html";

// The study of a folder as it stands there, whoever runs it meanwhile: takes no lock and writes nothing.
// Throws Error where the folder holds no study, or files that cannot be read.
StudyResults ReadStudy(const std::filesystem::path& folder);

// The page of a folder. `live`: the study is running.
std::string FolderPage(const StudyResults& results, const std::filesystem::path& folder,
                       const std::optional<Live>& live = {});
void WriteReport(const StudyResults& results, const std::filesystem::path& folder,
                 const std::optional<Live>& live = {});

// Keeps report.html fresh while cells run: at most every 10 seconds, and rarer where a study is so large that
// this would take more than 2% of the time. Never throws: a page that cannot be written stops nothing.
class ReportRefresher {
 public:
  static constexpr double kEvery_s = 10, kMostShare = 0.02;

  // `now_s`: a clock that never goes back.
  ReportRefresher(std::filesystem::path folder, std::function<double()> now_s);

  void Update(const StudyProgress& progress, const std::function<StudyResults()>& results);

  // What the page says of a study that is here.
  Live StateOf(const StudyProgress& progress) const;

 private:
  std::filesystem::path folder_;
  std::function<double()> now_s_;
  double next_s_, every_s_ = kEvery_s;
};

}  // namespace normlab
