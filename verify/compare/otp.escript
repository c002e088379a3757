#!/usr/bin/env escript
%% What a real Erlang/OTP supervisor does with traces: `escript otp.escript TRACES`.
%%
%% TRACES is a file of Erlang terms, one for each trace:
%%
%%     {Strategy, Intensity, AutoShutdown, [Child], [Op]}.
%%     Child = {Id, Restart, Shutdown, Significant, [number of a start that fails]}
%%           | {Id, Restart, Significant, Strategy, Intensity, [Child]}        a supervisor with children of its own
%%     Op    = {crash | normal | shutdown | kill | terminate | restart | delete | which, Id} | {start, Child}
%%
%% For each trace one line is printed: its steps, separated by `|`, the first being the start and the last the stop.
%% A step is `result alive children log`: `ok up a=up,b=down +a,+b`; crashes are for workers at any depth, everything
%% else for the children of the outer supervisor. The log has `+a` for each start of a, `!a` for
%% each start that failed, `-a` for each orderly stop. The same trace is run on Lyra and the lines are compared.
-module(otp).
-behaviour(supervisor).
-mode(compile).
-export([main/1, init/1, start/5]).

main([Path]) ->
    logger:set_primary_config(level, none),
    process_flag(trap_exit, true),
    {ok, Traces} = file:consult(Path),
    lists:foreach(fun(Trace) -> io:put_chars([run(Trace), $\n]) end, Traces).

init(Spec) -> {ok, Spec}.

run({Strategy, Intensity, Auto, Children, Ops}) ->
    Tables = {ets:new(log, [public, ordered_set]), ets:new(starts, [public])},
    {Log, Starts} = Tables,
    Flags = #{strategy => Strategy, intensity => Intensity, period => 3600, auto_shutdown => Auto},
    Specs = [spec(Child, Tables) || Child <- Children],
    Steps =
        case supervisor:start_link(?MODULE, {Flags, Specs}) of
            {ok, Sup} -> [step(ok, Sup, Log) | operate(Ops, Sup, Tables)];
            {error, _} -> [["failed dead - ", drain(Log)]]
        end,
    flush(),
    ets:delete(Log),
    ets:delete(Starts),
    lists:join("|", Steps).

%% ---------------------------------------------------------------- children

spec({Id, Restart, Significant, Strategy, Intensity, Children}, Tables) ->
    Flags = #{strategy => Strategy, intensity => Intensity, period => 3600},
    Specs = [spec(Child, Tables) || Child <- Children],
    #{id => Id, start => {supervisor, start_link, [?MODULE, {Flags, Specs}]}, restart => Restart,
      shutdown => infinity, significant => Significant, type => supervisor};
spec({Id, Restart, Shutdown, Significant, Fails}, {Log, Starts}) ->
    #{id => Id, start => {?MODULE, start, [Id, Shutdown, Fails, Log, Starts]}, restart => Restart,
      shutdown => Shutdown, significant => Significant, type => worker}.

start(Id, Shutdown, Fails, Log, Starts) ->
    Count = ets:update_counter(Starts, Id, 1, {Id, 0}),
    case lists:member(Count, Fails) of
        true -> write(Log, "!", Id), {error, planned};
        false ->
            write(Log, "+", Id),
            Self = self(),
            Pid = spawn_link(fun() ->
                process_flag(trap_exit, Shutdown =/= brutal_kill),
                Self ! {ready, self()},
                work(Id, Log)
            end),
            receive {ready, Pid} -> {ok, Pid} end
    end.

work(Id, Log) ->
    receive
        {'EXIT', _, Reason} -> write(Log, "-", Id), exit(Reason);
        {leave, normal} -> ok;
        {leave, Reason} -> exit(Reason)
    end.

write(Log, Sign, Id) ->
    ets:insert(Log, {erlang:unique_integer([monotonic]), [Sign, atom_to_list(Id)]}).

drain(Log) ->
    Lines = [Line || {_, Line} <- ets:tab2list(Log)],
    ets:delete_all_objects(Log),
    lists:join(",", Lines).

%% ---------------------------------------------------------------- operations

operate([], Sup, {Log, _}) ->
    Ref = monitor(process, Sup),
    exit(Sup, shutdown),
    receive {'DOWN', Ref, process, Sup, Reason} -> [[reason(Reason), " dead - ", drain(Log)]] end;
operate([Op | Ops], Sup, Tables) ->
    Result = operation(Op, Sup, Tables),
    case settled(Sup) of
        true -> [step(Result, Sup, element(1, Tables)) | operate(Ops, Sup, Tables)];
        false ->
            Reason = receive {'EXIT', Sup, Why} -> reason(Why) end,
            [[word(Result), " ", Reason, " - ", drain(element(1, Tables))]]
    end.

operation({start, Child}, Sup, Tables) -> answer(catch supervisor:start_child(Sup, spec(Child, Tables)));
operation({terminate, Id}, Sup, _) -> answer(catch supervisor:terminate_child(Sup, Id));
operation({restart, Id}, Sup, _) -> answer(catch supervisor:restart_child(Sup, Id));
operation({delete, Id}, Sup, _) -> answer(catch supervisor:delete_child(Sup, Id));
operation({which, _}, _, _) -> ok;
operation({How, Id}, Sup, _) ->
    case lists:keyfind(Id, 1, workers(Sup)) of
        {Id, Pid} -> leave(How, Pid), gone(Pid, Sup), ok;
        false -> absent
    end.

%% The workers that run, at any depth.
workers(Sup) ->
    case catch supervisor:which_children(Sup) of
        {'EXIT', _} -> [];
        Children ->
            lists:append([case Type of worker -> [{Id, Pid}]; supervisor -> workers(Pid) end
                          || {Id, Pid, Type, _} <- Children, is_pid(Pid)])
    end.

leave(kill, Pid) -> exit(Pid, kill);
leave(How, Pid) -> Pid ! {leave, case How of crash -> boom; _ -> How end}.

%% The supervisor has taken notice of a worker's end.
gone(Pid, Sup) ->
    case lists:keymember(Pid, 2, workers(Sup)) of
        true -> erlang:yield(), gone(Pid, Sup);
        false -> ok
    end.

%% Nothing is being started again any more; false if the supervisor has ended.
settled(Sup) ->
    case still(Sup) of
        ended -> false;
        true -> true;
        false -> erlang:yield(), settled(Sup)
    end.

still(Sup) ->
    case catch supervisor:which_children(Sup) of
        {'EXIT', _} -> ended;
        Children ->
            lists:all(
                fun({_, restarting, _, _}) -> false;
                   ({_, undefined, _, _}) -> true;
                   ({_, Pid, supervisor, _}) -> still(Pid) =:= true;
                   ({_, Pid, worker, _}) -> is_process_alive(Pid)
                end,
                Children)
    end.

answer(ok) -> ok;
answer({ok, _}) -> ok;
answer({error, {already_started, _}}) -> already_started;
answer({error, {bad_combination, _}}) -> invalid;
answer({error, planned}) -> failed;
answer({error, {planned, _}}) -> failed;
answer({error, {shutdown, {failed_to_start_child, _, _}}}) -> failed;
answer({error, Word}) when is_atom(Word) -> Word.

reason(Word) when is_atom(Word) -> atom_to_list(Word).

step(Result, Sup, Log) ->
    [word(Result), " up ", shown(Sup), " ", drain(Log)].

shown(Sup) ->
    case lists:reverse(supervisor:which_children(Sup)) of
        [] -> "-";
        Children ->
            lists:join(",", [[atom_to_list(Id), child(Pid, Type)] || {Id, Pid, Type, _} <- Children])
    end.

child(undefined, _) -> "=down";
child(Pid, supervisor) -> ["=(", shown(Pid), ")"];
child(_, worker) -> "=up".

word(Word) -> atom_to_list(Word).

flush() -> receive _ -> flush() after 0 -> ok end.
