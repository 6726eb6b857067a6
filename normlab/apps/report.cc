// normlab report: a study again, from its folder, finished or not, in any form.

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "normlab/apps/command.h"
#include "normlab/base/error.h"
#include "normlab/base/files.h"
#include "normlab/base/nearest.h"
#include "normlab/study/export.h"
#include "normlab/study/report/refresh.h"

namespace normlab::apps {
namespace {

constexpr const char* kFooter =
    "Examples:\n"
    "  normlab report study                            the table of `normlab compare`\n"
    "  normlab report study --format markdown          for an issue or a README\n"
    "  normlab report study --format html --out study.html\n"
    "  normlab report study --format json              what results.json holds\n"
    "\n"
    "Nothing is computed but statistics, and nothing in DIR is written: a study can\n"
    "be looked at while another process runs it. `compare` itself leaves the page as\n"
    "report.html in its folder, and refreshes it while it runs.";

struct ReportArguments {
  std::string folder, format = "text";
  std::optional<std::string> out;
};

struct Format {
  std::string name;
  std::function<std::string(const StudyResults&, const std::string& folder)> render;
};

const std::vector<Format>& Formats() {
  static const std::vector<Format> formats = {
      {"text", [](const StudyResults& results, const std::string&) { return ResultsText(results); }},
      {"markdown", [](const StudyResults& results, const std::string&) { return ResultsMarkdown(results); }},
      {"csv", [](const StudyResults& results, const std::string&) { return ResultsCsv(results); }},
      {"json", [](const StudyResults& results,
                  const std::string&) { return DumpJson(ResultsJson(results), 2) + "\n"; }},
      {"html",
       [](const StudyResults& results, const std::string& folder) { return FolderPage(results, folder); }}};
  return formats;
}

// A file of the study itself is no place for its report; its page is.
void RequireNoRecord(const std::string& out, const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::exists(out, error)) return;
  const fs::path file = fs::canonical(out, error), home = fs::canonical(folder, error);
  if (error || file == home / kReportFile) return;
  if (std::ranges::mismatch(home, file).in1 == home.end())
    Fail("--out \"{}\" is a file of the study itself, which would be lost; choose another name", out);
}

int Report(const ReportArguments& arguments) {
  const Format* format = nullptr;
  std::vector<std::string> names;
  for (const Format& one : Formats()) {
    names.push_back(one.name);
    if (one.name == arguments.format) format = &one;
  }
  if (format == nullptr) throw UsageError("unknown --format " + UnknownName(arguments.format, names));
  if (arguments.out) RequireNoRecord(*arguments.out, arguments.folder);
  const std::string text = format->render(ReadStudy(arguments.folder), arguments.folder);
  if (arguments.out)
    WriteFileAtomic(*arguments.out, text);
  else
    Print(text);
  return kExitGood;
}

}  // namespace

Command AddReport(CLI::App& program) {
  CLI::App* parser =
      program.add_subcommand("report", "Show a study again: text, Markdown, CSV, JSON or a page.");
  auto arguments = std::make_shared<ReportArguments>();
  parser->add_option("DIR", arguments->folder, "the folder of a study, finished or not")
      ->type_name("")
      ->required();
  parser->add_option("--format", arguments->format, "text (the default), markdown, csv, json or html")
      ->type_name("FORMAT");
  parser->add_option("--out", arguments->out, "a file to write, instead of standard output")
      ->type_name("FILE");
  parser->footer(kFooter);
  return {.parser = parser, .run = [arguments](const Environment&) { return Report(*arguments); }};
}

}  // namespace normlab::apps
