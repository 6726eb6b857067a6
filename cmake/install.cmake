# normlab::normlab, all that a program links to normalize rows or to train models; normlab::c, the shared library for
# C and other languages; and their installation, which find_package(normlab CONFIG) finds.
add_library(normlab_all INTERFACE)
add_library(normlab::normlab ALIAS normlab_all)
set(public_layers base stats norms kernels data model train)
list(TRANSFORM public_layers PREPEND normlab_ OUTPUT_VARIABLE public_libraries)
list(TRANSFORM public_layers PREPEND normlab:: OUTPUT_VARIABLE public_targets)
target_link_libraries(normlab_all INTERFACE ${public_targets})
set_target_properties(normlab_all PROPERTIES EXPORT_NAME normlab)

if(NOT NORMLAB_INSTALL)
  return()
endif()

include(CMakePackageConfigHelpers)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/normlab)
if(TARGET normlab)
  install(TARGETS normlab RUNTIME)
endif()
install(TARGETS normlab_all ${public_libraries} EXPORT normlabTargets ARCHIVE)
install(TARGETS normlab_c EXPORT normlabCTargets LIBRARY)
foreach(export normlabTargets normlabCTargets)
  install(EXPORT ${export} NAMESPACE normlab:: DESTINATION ${package_folder})
endforeach()

# Headers. A layer's headers are public; what stands below kernels/cpu and kernels/reference is not, but for the
# functions that make the devices. Helpers of tests and code for one instruction set stay here.
foreach(layer IN LISTS public_layers)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/normlab/${layer} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/normlab
          FILES_MATCHING PATTERN "*.h"
          PATTERN "*-inl.h" EXCLUDE PATTERN "testing" EXCLUDE PATTERN "testdata" EXCLUDE
          PATTERN "normlab/kernels/cpu" EXCLUDE PATTERN "normlab/kernels/reference" EXCLUDE)
endforeach()
foreach(device cpu reference)
  install(FILES ${PROJECT_SOURCE_DIR}/normlab/kernels/${device}/${device}_device.h
          DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/normlab/kernels/${device})
endforeach()
install(FILES ${PROJECT_BINARY_DIR}/include/normlab/base/version.h
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/normlab/base)
install(FILES ${PROJECT_SOURCE_DIR}/normlab/c_api/normlab.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/normlabConfig.cmake.in
  ${PROJECT_BINARY_DIR}/normlabConfig.cmake INSTALL_DESTINATION ${package_folder} NO_SET_AND_CHECK_MACRO)
# Before 1.0 a minor version may change what programs rely on.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/normlabConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/normlabConfig.cmake ${PROJECT_BINARY_DIR}/normlabConfigVersion.cmake
        DESTINATION ${package_folder})
