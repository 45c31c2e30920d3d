-- wrk: deliveries of a route, each under a key of its own. Arguments: path, run.
local count, thread_number = 0, 0

function setup(thread)
    thread:set("number", thread_number)
    thread_number = thread_number + 1
end

function init(args)
    path = args[1]
    run = tonumber(args[2])
end

function request()
    count = count + 1
    local id = string.format("%08x-%04x-7000-8000-%012x", run, number, count)
    return wrk.format("POST", path, {["Idempotency-Key"] = id, ["Content-Type"] = "application/json", ["ce-id"] = id,
        ["ce-specversion"] = "1.0", ["ce-type"] = "BENCH_NOTE", ["ce-source"] = "issuing", ["ce-subject"] = "user-1"},
        '{"order": "order", "amount": 12.50}')
end

function done(summary, latency, requests)
    io.write(string.format("RESULT %d %d %d %.3f %.3f\n", summary.requests, summary.duration,
        summary.errors.status + summary.errors.connect + summary.errors.read + summary.errors.write +
            summary.errors.timeout,
        latency:percentile(50) / 1000, latency:percentile(99) / 1000))
end
