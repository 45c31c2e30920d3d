-- wrk: accepts of ever new keys by a pool of users. Arguments: file with one token a line, number of the thread's run.
local tokens, count = {}, 0
local thread_number = 0

function setup(thread)
    thread:set("number", thread_number)
    thread_number = thread_number + 1
end

function init(args)
    for line in io.lines(args[1]) do
        tokens[#tokens + 1] = line
    end
    prefix = args[2] .. "-" .. number .. "-"
    at = number * 7919
end

function request()
    count = count + 1
    at = at + 1
    return wrk.format("POST", "/v1/card-requests", {
        ["Authorization"] = "Bearer " .. tokens[at % #tokens + 1],
        ["Idempotency-Key"] = prefix .. count,
        ["Content-Type"] = "application/json",
    }, '{"kind":"new","program":"standard"}')
end

function done(summary, latency, requests)
    io.write(string.format("RESULT %d %d %d %.3f %.3f\n", summary.requests, summary.duration,
        summary.errors.status + summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.timeout,
        latency:percentile(50) / 1000, latency:percentile(99) / 1000))
end
