# SPDX-License-Identifier: Apache-2.0
# GPU_ARCH: the compute capabilities to build kernels for, or "none". By default all, where nvcc is there and the programs
# are to run on this kind of machine.
set(VIREO_ALL_GPUS 80 87 89 90a 110f 120f)
set(gpu_arch_help "compute capabilities to build CUDA kernels for, e.g. \"87;90a\"; none: no CUDA backend")

if(NOT DEFINED GPU_ARCH)
  find_program(VIREO_NVCC nvcc HINTS ${CUDAToolkit_ROOT} $ENV{CUDA_HOME} /usr/local/cuda PATH_SUFFIXES bin)
  set(gpu_arch none)
  if(CMAKE_CROSSCOMPILING)
    message(STATUS "No CUDA backend: this is a cross build (GPU_ARCH=none)")
  elseif(VIREO_NVCC)
    set(gpu_arch ${VIREO_ALL_GPUS})
  else()
    message(STATUS "No CUDA backend: there is no nvcc (GPU_ARCH=none)")
  endif()
  set(GPU_ARCH "${gpu_arch}" CACHE STRING "${gpu_arch_help}")
endif()

if(NOT GPU_ARCH STREQUAL "none")
  foreach(arch ${GPU_ARCH})
    if(NOT arch MATCHES "^[0-9]+[af]?$")
      message(FATAL_ERROR "GPU_ARCH has \"${arch}\": use compute capabilities such as 87 or 90a, or none")
    endif()
  endforeach()
  if(VIREO_NVCC AND NOT CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_COMPILER ${VIREO_NVCC})
  endif()
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES OFF)  # src/cuda says its own
  endif()
  enable_language(CUDA)
  if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake up to 3.25 at least does not know it
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  find_package(CUDAToolkit REQUIRED)
  message(STATUS "CUDA backend: nvcc ${CMAKE_CUDA_COMPILER_VERSION}, kernels for ${GPU_ARCH}")
endif()
