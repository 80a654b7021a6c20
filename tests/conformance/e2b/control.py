"""Every call of E2B's control plane, by the Python SDK that is installed."""
import datetime
import inspect
import json
import os
import pathlib
import tempfile
import time
import urllib.request

import e2b
from checks import able, check, check_if, finish, raises
from e2b import AsyncSandbox, Sandbox

NONE = "iabcdefghij0123456789"
Missing = getattr(e2b, "SandboxNotFoundException", e2b.SandboxException)  # 2.7 has none of its own
MissingEverywhere = Missing if hasattr(e2b, "SandboxNotRunningException") else e2b.SandboxException  # and others not for every call


def ask(method, path, body=None):
    """What the SDK has no call for."""
    request = urllib.request.Request(os.environ["E2B_API_URL"] + path, method=method, data=None if body is None else json.dumps(body).encode(),
                                     headers={"X-API-Key": os.environ["E2B_API_KEY"], "Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read() or b"null")


def everything(paginator):
    found = []
    while paginator.has_next:
        found += paginator.next_items()
    return found


def near(moment, seconds, by=5):
    assert abs(moment.timestamp() - seconds) < by, (moment, seconds)


box = None


@check
def create():
    global box
    box = Sandbox.create(timeout=120, metadata={"for": "python", "odd key": "a=b&c %2F"}, envs={"COLOR": "red"})
    assert box.sandbox_id.isalnum()
    assert box.get_host(3000).startswith("3000-%s.localhost:" % box.sandbox_id), box.get_host(3000)


@check
def errors_have_their_kinds():
    raises(e2b.AuthenticationException, Sandbox.create, api_key="e2b_00ff")
    raises(e2b.AuthenticationException, Sandbox.kill, NONE, api_key="e2b_00ff")
    error = raises(e2b.SandboxException, Sandbox.create, "no-such-template")
    assert "404" in str(error), error
    error = raises(e2b.SandboxException, Sandbox.create, timeout=10_000_000)
    assert "Timeout cannot be greater" in str(error), error
    raises(Missing, Sandbox.get_info, NONE)
    raises(Missing, Sandbox.set_timeout, NONE, 10)
    raises(MissingEverywhere, Sandbox.get_metrics, NONE)


@check
def get_info():
    info = box.get_info()
    assert info.sandbox_id == box.sandbox_id
    assert info.metadata == {"for": "python", "odd key": "a=b&c %2F"}, info.metadata
    assert info.template_id == "base"
    near(info.end_at, time.time() + 120)


@check
def lists():
    found = everything(Sandbox.list(query=e2b.SandboxQuery(metadata={"odd key": "a=b&c %2F"})))
    assert [each.sandbox_id for each in found] == [box.sandbox_id]
    made = [Sandbox.create(metadata={"page": "yes"}) for _ in range(3)]
    pages = Sandbox.list(query=e2b.SandboxQuery(metadata={"page": "yes"}), limit=2)
    assert len(pages.next_items()) == 2 and pages.has_next
    assert len(pages.next_items()) == 1 and not pages.has_next
    for each in made:
        assert each.kill()


@check
def set_timeout():
    box.set_timeout(30)
    near(box.get_info().end_at, time.time() + 30)
    box.set_timeout(300)
    near(box.get_info().end_at, time.time() + 300)


@check
def connect():
    assert Sandbox.connect(box.sandbox_id).sandbox_id == box.sandbox_id
    raises(e2b.NotFoundException, Sandbox.connect, NONE)


@check
def pause_and_resume():
    pause = getattr(box, "pause", None) or box.beta_pause
    pause()
    assert box.get_info().state.value == "paused"
    paused = everything(Sandbox.list(query=e2b.SandboxQuery(state=[e2b.SandboxState.PAUSED])))
    assert box.sandbox_id in [each.sandbox_id for each in paused]
    box.connect(timeout=90)
    info = box.get_info()
    assert info.state.value == "running"
    near(info.end_at, time.time() + 90)


@check
def metrics():
    samples = box.get_metrics()
    assert samples and samples[-1].mem_total > 0 and samples[-1].cpu_count >= 1, samples
    now = datetime.datetime.now(datetime.timezone.utc)
    hour = datetime.timedelta(hours=1)
    assert box.get_metrics(start=now - hour, end=now + hour)
    assert box.get_metrics(start=now - 48 * hour, end=now - 24 * hour) == []


@check
def filters():
    first = Sandbox.create(metadata={"of": "filters"})
    time.sleep(1.1)
    between = datetime.datetime.now(datetime.timezone.utc)
    second = Sandbox.create(metadata={"of": "filters"})

    def ids(**query):
        order = {"order": query.pop("order")} if "order" in query else {}
        return [each.sandbox_id for each in everything(Sandbox.list(query=e2b.SandboxQuery(metadata={"of": "filters"}, **query), **order))]
    assert ids() == [second.sandbox_id, first.sandbox_id]
    known = e2b.SandboxQuery.__dataclass_fields__
    if able("started_after" in known, "list by started_after"):
        assert ids(started_after=between) == [second.sandbox_id]
    if able("template" in known, "list by template"):
        assert ids(template="nobodys") == []
    if able("order" in inspect.signature(Sandbox.list).parameters, "order of lists"):
        assert ids(order="asc") == [first.sandbox_id, second.sandbox_id]
    for each in (first, second):
        assert each.kill()


@check_if("lifecycle" in inspect.signature(Sandbox.create).parameters and hasattr(e2b, "Volume"), "lifecycle and volumes")
def create_with_everything():
    volume = e2b.Volume.create("everything")
    made = Sandbox.create("base", timeout=62, metadata={"a": "b"}, envs={"COLOR": "red"}, secure=True, allow_internet_access=True,
                          network={"allow_out": ["example.org"], "deny_out": ["0.0.0.0/0"], "allow_public_traffic": False},
                          lifecycle={"on_timeout": "pause", "auto_resume": True}, volume_mounts={"/mnt/all": volume})
    info = made.get_info()
    near(info.end_at, time.time() + 62)
    assert info.metadata == {"a": "b"}
    assert made.traffic_access_token
    assert made.commands.run("echo $COLOR; echo kept > /mnt/all/f").stdout == "red\n"
    assert volume.read_file("/f") == "kept\n"
    made.pause()
    assert made.get_info().state.value == "paused"
    assert made.commands.run("echo awake").stdout == "awake\n"
    assert made.get_info().state.value == "running"
    assert made.kill()
    assert e2b.Volume.destroy(volume.volume_id)


@check
def what_this_server_has_not_is_refused():
    error = raises(e2b.SandboxException, Sandbox.create, mcp={"browserbase": {}})
    assert "mcp" in str(error), error
    if able("mode" in inspect.signature(getattr(Sandbox, "create_snapshot", raises)).parameters, "snapshots and pauses without memory"):
        error = raises(e2b.SandboxException, box.create_snapshot, mode="filesystem")
        assert "memory" in str(error), error
        error = raises(e2b.SandboxException, box.pause, mode="filesystem")
        assert "memory" in str(error), error


@check_if("idempotency_key" in inspect.signature(Sandbox.create).parameters, "idempotency_key")
def created_once():
    first = Sandbox.create(idempotency_key="the-first-0", metadata={"once": "yes"})
    again = Sandbox.create(idempotency_key="the-first-0", metadata={"once": "yes"})
    assert again.sandbox_id == first.sandbox_id
    assert again.commands.run("echo same").stdout == "same\n"
    assert len(everything(Sandbox.list(query=e2b.SandboxQuery(metadata={"once": "yes"})))) == 1
    error = raises(e2b.SandboxException, Sandbox.create, idempotency_key="the-first-0", metadata={"once": "no"})
    assert "409" in str(error), error
    assert first.kill()
    error = raises(e2b.SandboxException, Sandbox.create, idempotency_key="the-first-0", metadata={"once": "yes"})
    assert "409" in str(error), error


@check_if(hasattr(Sandbox, "create_snapshot"), "snapshots")
def snapshots():
    source = Sandbox.create()
    source.files.write("kept.txt", "of the snapshot")
    made = source.create_snapshot(name="by-python")
    source.files.write("kept.txt", "later")
    assert [each.snapshot_id for each in everything(source.list_snapshots())] == [made.snapshot_id]
    other = Sandbox.create(made.snapshot_id)
    assert other.files.read("kept.txt") == "of the snapshot"
    assert other.kill() and source.kill()
    assert Sandbox.delete_snapshot(made.snapshot_id)
    assert not Sandbox.delete_snapshot(made.snapshot_id)
    raises(Missing, Sandbox.create_snapshot, NONE)


@check_if(hasattr(Sandbox, "fork"), "fork")
def forks():
    source = Sandbox.create()
    source.files.write("kept.txt", "before")
    made = source.fork(count=2, timeout=60)
    assert len({each.sandbox_id for each in made}) == 2
    for each in made:
        assert each.files.read("kept.txt") == "before"
        each.files.write("kept.txt", each.sandbox_id)
    assert [each.files.read("kept.txt") for each in (source, *made)] == ["before", *(each.sandbox_id for each in made)]
    for each in (source, *made):
        assert each.kill()
    raises(Missing, Sandbox.fork, NONE)


@check_if(hasattr(Sandbox, "update_network"), "update_network")
def network():
    box.update_network({"allow_out": ["example.org"], "deny_out": ["0.0.0.0/0"]})
    assert ask("GET", "/sandboxes/" + box.sandbox_id)["network"]["allowOut"] == ["example.org"]
    raises(e2b.SandboxException, box.update_network, {"deny_out": ["8.8.8.8"]})
    box.update_network({})
    raises(Missing, Sandbox.update_network, NONE, {})


@check_if(hasattr(e2b, "Volume"), "volumes")
def volumes():
    volume = e2b.Volume.create("python-volume")
    volume.write_file("/a/b.txt", "hello")
    assert volume.read_file("/a/b.txt") == "hello"
    assert [each.path for each in volume.list("/")] == ["/a"]
    assert not volume.exists("/none")
    volume.make_dir("/more")
    assert volume.get_info("/a/b.txt").size == 5
    assert volume.update_metadata("/a/b.txt", mode=0o600).mode & 0o777 == 0o600
    volume.remove("/more")
    raises(e2b.VolumeException, e2b.Volume.create, "python-volume")
    raises(e2b.NotFoundException, e2b.Volume.connect, NONE)
    raises(e2b.NotFoundException, volume.read_file, "/none")
    if able(hasattr(e2b, "VolumeNotFoundException"), "VolumeNotFoundException"):
        raises(e2b.VolumeNotFoundException, e2b.Volume.get_info, NONE)
        raises(e2b.VolumePathNotFoundException, volume.list, "/none")
    assert [each.name for each in e2b.Volume.list()] == ["python-volume"]
    assert e2b.Volume.connect(volume.volume_id).read_file("/a/b.txt") == "hello"
    mounted = Sandbox.create(volume_mounts={"/mnt/here": volume})
    assert mounted.files.read("/mnt/here/a/b.txt", user="root") == "hello"
    assert mounted.kill()
    assert e2b.Volume.destroy(volume.volume_id)
    assert not e2b.Volume.destroy(volume.volume_id)


@check_if(hasattr(e2b, "Secret"), "secrets")
def secrets():
    made = e2b.Secret.create("Python_One", "value", metadata={"of": "me"})
    assert made.name == "python_one"
    assert e2b.Secret.exists("python_one") and not e2b.Secret.exists("nobody")
    e2b.Secret.update("python_one", "value2")
    assert e2b.Secret.get_info(made.secret_id).metadata == {"of": "me"}
    assert [each.name for each in everything(e2b.Secret.list(limit=1))] == ["python_one"]
    raises(e2b.SecretException, e2b.Secret.create, "python_one", "again")
    raises(e2b.SecretNotFoundException, e2b.Secret.get_info, "nobody")
    raises(e2b.SecretNotFoundException, e2b.Secret.update, "nobody", "x")
    assert e2b.Secret.destroy("python_one")
    assert not e2b.Secret.destroy("python_one")


@check
def a_template():
    lines = []
    with tempfile.TemporaryDirectory() as context:
        (pathlib.Path(context) / "hello.txt").write_text("hello from outside")
        recipe = e2b.Template(file_context_path=context).from_template("base").copy("hello.txt", "/app/hello.txt").run_cmd("cat /app/hello.txt")
        e2b.Template.build(recipe, alias="python-made", cpu_count=1, memory_mb=512, on_build_logs=lambda line: lines.append(line.message))
    assert any("hello from outside" in line for line in lines), lines
    made = Sandbox.create("python-made")
    assert made.files.read("/app/hello.txt") == "hello from outside"
    assert made.kill()


@check
def builds_that_fail():
    error = raises(e2b.BuildException, e2b.Template.build, e2b.Template().from_template("base").run_cmd("exit 3"), alias="python-failing")
    assert "exit code 3" in str(error), error
    raises(e2b.BuildException, e2b.Template.build, e2b.Template().from_image("nobody/has-this:1"), alias="python-failing")


@check
def files_that_are_not_taken():
    """The template is removed between its request and its files."""
    def remove(line):
        words = line.message.replace(",", " ").split()
        if "created" in words and "ID:" in words:
            ask("DELETE", "/templates/" + words[words.index("ID:") + 1])
    with tempfile.TemporaryDirectory() as context:
        (pathlib.Path(context) / "unseen.txt").write_text(str(time.time()))
        recipe = e2b.Template(file_context_path=context).from_template("base").copy("unseen.txt", "/unseen.txt")
        raises(e2b.FileUploadException, e2b.Template.build, recipe, alias="python-removed", on_build_logs=remove)


@check_if(hasattr(e2b.Template, "assign_tags"), "tags of templates")
def tags():
    assert e2b.Template.exists("python-made") and not e2b.Template.exists("nobodys")
    e2b.Template.assign_tags("python-made", ["v1", "stable"])
    assert Sandbox.create("python-made:stable").kill()
    e2b.Template.remove_tags("python-made", "stable")
    assert sorted(each.tag for each in e2b.Template.get_tags("python-made")) == ["default", "v1"]
    raises(e2b.TemplateException, e2b.Template.assign_tags, "nobodys", "v1")
    raises(e2b.TemplateException, e2b.Template.get_tags, "nobodys")


@check
async def asynchronously():
    other = await AsyncSandbox.create(metadata={"a": "sync"})
    assert (await other.get_info()).metadata == {"a": "sync"}
    assert await other.is_running()
    await other.set_timeout(30)
    near((await other.get_info()).end_at, time.time() + 30)
    await (getattr(other, "pause", None) or other.beta_pause)()
    assert not await other.is_running()
    again = await AsyncSandbox.connect(other.sandbox_id, timeout=60)
    assert (await again.get_info()).state.value == "running"
    pages = AsyncSandbox.list(query=e2b.SandboxQuery(metadata={"a": "sync"}))
    assert [each.sandbox_id for each in await pages.next_items()] == [other.sandbox_id]
    assert await other.get_metrics()
    assert await other.kill()
    assert not await AsyncSandbox.kill(other.sandbox_id)


@check
def kill():
    assert box.kill()
    assert not Sandbox.kill(box.sandbox_id)
    assert not Sandbox.kill(NONE)


finish()
