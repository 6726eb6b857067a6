# Helpers that every folder's CMakeLists.txt uses: one library per layer, one executable per test file.

# normlab_options and normlab_warnings compile our own sources; nothing of them reaches a project that links us.
add_library(normlab_options INTERFACE)
# Contraction is off so that a loop gives the bits that its source says; kernels ask for FMA by name.
target_compile_options(normlab_options INTERFACE -ffp-contract=off -fno-math-errno)

add_library(normlab_warnings INTERFACE)
# Off: sign conversion (sizes meet signed indices everywhere), missing initializers (argument structs have
# defaults), and stringop-overflow, which gcc 12 reports inside fmt 9 for correct code.
target_compile_options(normlab_warnings INTERFACE
  -Wall -Wextra -Wconversion -Wshadow
  -Wno-sign-conversion -Wno-missing-field-initializers -Wno-stringop-overflow)
if(NORMLAB_WERROR)
  target_compile_options(normlab_warnings INTERFACE -Werror)
endif()

if(NORMLAB_SANITIZE)
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
endif()

# nl_library(base SOURCES a.cc b.cc PUBLIC dep... PRIVATE dep...)   ->   normlab::base
# Users get C++20, the headers' folder and the public dependencies.
function(nl_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(normlab_${name} STATIC ${ARG_SOURCES})
  add_library(normlab::${name} ALIAS normlab_${name})
  nl_compile(normlab_${name})
  target_compile_features(normlab_${name} PUBLIC cxx_std_20)
  target_include_directories(normlab_${name} PUBLIC
    "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR};${PROJECT_BINARY_DIR}/include>"
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(normlab_${name} PUBLIC ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE})
  set_target_properties(normlab_${name} PROPERTIES EXPORT_NAME ${name})
endfunction()

# How a library of ours is compiled. Position-independent and hidden, so that the C library can take the others in and
# show nothing but its own functions.
function(nl_compile target)
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:normlab_options> $<BUILD_INTERFACE:normlab_warnings>)
  set_target_properties(${target} PROPERTIES
    POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
endfunction()

# nl_test(name LABELS cpu LINKS normlab::base ... [SOURCES extra.cc] [TIMEOUT s] [ONE_ENTRY])
# builds name.cc into its own executable; every gtest case is a ctest entry, or with ONE_ENTRY the whole file is
# one (for files whose cases are many and short). Threads that wait sleep: tests run side by side, with more threads
# than cores. Target names are global: a test is named after its header.
function(nl_test name)
  cmake_parse_arguments(ARG "ONE_ENTRY" "TIMEOUT" "LABELS;LINKS;SOURCES" ${ARGN})
  if(NOT NORMLAB_TESTS)
    return()
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_executable(${name} ${name}.cc ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE normlab_options normlab_warnings ${ARG_LINKS} GTest::gtest GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE NORMLAB_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  if(ARG_ONE_ENTRY)
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT}
                         ENVIRONMENT OMP_WAIT_POLICY=passive)
  else()
    # Properties are set from a file of our own: gtest_discover_tests flattens a list of labels.
    gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 TEST_LIST ${name}_cases)
    set(properties ${CMAKE_CURRENT_BINARY_DIR}/${name}_properties.cmake)
    file(WRITE ${properties}
      "set_tests_properties(\${${name}_cases} PROPERTIES LABELS \"${ARG_LABELS}\" TIMEOUT ${ARG_TIMEOUT} ENVIRONMENT OMP_WAIT_POLICY=passive)\n")
    set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${properties})
  endif()
endfunction()
