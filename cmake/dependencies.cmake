# Everything comes from the system (see cmake/debian-packages.txt); nothing is downloaded here.
find_package(OpenMP REQUIRED COMPONENTS CXX)  # required: without it one core would work, and nobody would notice
message(STATUS "Threads: OpenMP ${OpenMP_CXX_VERSION}, runtime ${OpenMP_gomp_LIBRARY}${OpenMP_omp_LIBRARY}")
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(Boost REQUIRED)  # headers only: Boost.Math
find_package(hwy REQUIRED)

# oneDNN's own package file asks for OpenCL, which the CPU part does not need.
find_library(DNNL_LIBRARY dnnl REQUIRED)
find_path(DNNL_INCLUDE_DIR dnnl.h REQUIRED)
add_library(normlab_onednn INTERFACE)
target_link_libraries(normlab_onednn INTERFACE ${DNNL_LIBRARY})
target_include_directories(normlab_onednn SYSTEM INTERFACE ${DNNL_INCLUDE_DIR})

find_path(RANDOM123_INCLUDE_DIR Random123/philox.h REQUIRED)
find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)

if(NORMLAB_TESTS)
  find_package(GTest REQUIRED)
  find_package(rapidcheck REQUIRED)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  include(GoogleTest)
endif()
