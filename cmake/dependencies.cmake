# Everything comes from the system (see cmake/debian-packages.txt); nothing is downloaded here. What an installed
# normlab looks for is in normlabConfig.cmake.in.
find_package(OpenMP REQUIRED COMPONENTS CXX)  # required: without it one core would work, and nobody would notice
message(STATUS "Threads: OpenMP ${OpenMP_CXX_VERSION}, runtime ${OpenMP_gomp_LIBRARY}${OpenMP_omp_LIBRARY}")
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
if(NORMLAB_PROGRAM OR NORMLAB_TESTS)
  find_package(CLI11 REQUIRED)
endif()
find_package(Boost REQUIRED)  # headers only: Boost.Math
find_package(hwy REQUIRED)

# The two libraries that an installed normlab finds by itself. Imported, so that the exported targets name them and
# normlabConfig.cmake says what they are on the client's machine.
#
# OpenMP: our objects call the runtime of the compiler that built them. A client links that very library, whatever
# its own compiler would take: two OpenMP runtimes in one process fight for the cores.
list(GET OpenMP_CXX_LIB_NAMES 0 NORMLAB_OPENMP_NAME)  # gomp
get_filename_component(NORMLAB_OPENMP_FOLDER "${OpenMP_${NORMLAB_OPENMP_NAME}_LIBRARY}" DIRECTORY)
add_library(normlab::openmp INTERFACE IMPORTED)
target_link_libraries(normlab::openmp INTERFACE OpenMP::OpenMP_CXX)

# oneDNN: its own package file asks for OpenCL, which the CPU part does not need.
find_library(DNNL_LIBRARY dnnl REQUIRED)
find_path(DNNL_INCLUDE_DIR dnnl.h REQUIRED)
add_library(normlab::onednn INTERFACE IMPORTED)
target_link_libraries(normlab::onednn INTERFACE ${DNNL_LIBRARY})
target_include_directories(normlab::onednn INTERFACE ${DNNL_INCLUDE_DIR})

# Chart.js, whose text the program carries for the report page.
if(NORMLAB_PROGRAM OR NORMLAB_TESTS)
  find_file(NORMLAB_CHART_JS chart.min.js PATHS /usr/share/javascript/chart.js /usr/share/javascript REQUIRED)
endif()

find_path(RANDOM123_INCLUDE_DIR Random123/philox.h REQUIRED)
find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)

if(NORMLAB_TESTS)
  find_package(GTest REQUIRED)
  find_package(rapidcheck REQUIRED)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  include(GoogleTest)
endif()
