-- Sends the requests of a file in turn, repeatedly. Each is a line with its length, followed by its bytes.

local requests, turn = {}, 0

function init(arguments)
  local file = assert(io.open(arguments[1], "rb"))
  for length in file:lines() do
    requests[#requests + 1] = file:read(tonumber(length))
  end
  file:close()
end

function request()
  turn = turn % #requests + 1
  return requests[turn]
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '\n{"requests": %d, "seconds": %f, "errors": %d, "failed": %d, "median": %f, "p99": %f}\n',
    summary.requests, summary.duration / 1e6, errors.status,
    errors.connect + errors.read + errors.write + errors.timeout,
    latency:percentile(50) / 1e3, latency:percentile(99) / 1e3
  ))
end
