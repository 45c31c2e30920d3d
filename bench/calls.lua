-- wrk: the sandbox's own calls, and the cheapest one of an admin listener. Argument: get (eligibility), post (create a card under an ever new
-- key), livez.
local count, thread_number = 0, 0

function setup(thread)
    thread:set("number", thread_number)
    thread_number = thread_number + 1
end

function init(args)
    kind = args[1]
    run = tonumber(args[2])
end

function request()
    if kind == "get" then
        return wrk.format("GET", "/v1/users/user-1/card-eligibility?kind=new")
    end
    if kind == "livez" then
        return wrk.format("GET", "/livez")
    end
    count = count + 1
    local id = string.format("%08x-%04x-7000-8000-%012x", run, number, count)
    return wrk.format("POST", "/v1/cards", {["Idempotency-Key"] = id, ["Content-Type"] = "application/json"},
        '{"reference":"' .. id .. '","user_id":"user-1","kind":"new","replaces":null,"program":null,"memo":null}')
end

function done(summary, latency, requests)
    io.write(string.format("RESULT %d %d %d %.3f %.3f\n", summary.requests, summary.duration,
        summary.errors.status + summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.timeout,
        latency:percentile(50) / 1000, latency:percentile(99) / 1000))
end
