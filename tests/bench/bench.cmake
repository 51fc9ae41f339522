# The benchmarks as targets, and the tests of what they are made of.
foreach(length IN ITEMS short full)
  set(target bench)
  if(length STREQUAL full)
    set(target bench-full)
  endif()
  add_custom_target(${target}
    COMMAND /usr/bin/python3 "${CMAKE_CURRENT_SOURCE_DIR}/bench.py" --${length}
      --bin "${CMAKE_BINARY_DIR}/bin" --out "${CMAKE_BINARY_DIR}/${target}"
      --node "${CMAKE_BINARY_DIR}/bench-node"
    USES_TERMINAL VERBATIM)
  add_dependencies(${target} bench_load lockbrokerd)
endforeach()

foreach(name IN ITEMS commands records smoke)
  add_test(NAME bench.${name}
    COMMAND /usr/bin/python3 -m pytest -q -p no:cacheprovider --rootdir "${CMAKE_CURRENT_SOURCE_DIR}"
      "${CMAKE_CURRENT_SOURCE_DIR}/test_${name}.py")
  set_tests_properties(bench.${name} PROPERTIES
    TIMEOUT 600
    RUN_SERIAL TRUE
    ENVIRONMENT "LOCKBROKER_BIN=${CMAKE_BINARY_DIR}/bin;PYTHONDONTWRITEBYTECODE=1")
endforeach()
