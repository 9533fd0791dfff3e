"""What is done with Ceph's radosgw, and whether everything that it keeps in RADOS is as it should be.

radosgw.py ENDPOINT SECTION: `steps` does each thing once; `write` writes until its input ends and reads all of it back.
CEPH_CONF names the cluster. radosgw counts a second as a day (rgw_lc_debug_interval=1) and logs usage each second.
"""

import hashlib
import json
import subprocess
import sys
import threading
import time
import urllib.request

import boto3
from botocore.client import Config
from botocore.exceptions import ClientError

PATIENCE = 240
MIB = 1 << 20
DATA = 'default.rgw.buckets.data'


def run(*args):
    done = subprocess.run(args, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, f'{args} ended with {done.returncode}: {done.stdout}{done.stderr}'
    return done.stdout


def admin(line):
    out = run('radosgw-admin', *line.split())
    try:
        return json.loads(out)
    except ValueError:
        return out


def client(endpoint, user):
    key = user['keys'][0]
    # A request may wait for an OSD that was killed; it is not sent twice, or a lost write would not show.
    config = Config(retries={'max_attempts': 0}, read_timeout=PATIENCE, s3={'addressing_style': 'path'})
    return boto3.client('s3', endpoint_url=endpoint, region_name='us-east-1', config=config,
                        aws_access_key_id=key['access_key'], aws_secret_access_key=key['secret_key'])


def refused(code, call, **args):
    try:
        call(**args)
    except ClientError as error:
        said = error.response['Error']['Code']
        assert said == code, f'{said}, not {code}'
        return
    raise AssertionError(f'{code} was expected')


def until(what, good):
    end = time.monotonic() + PATIENCE
    while not good():
        assert time.monotonic() < end, f'{what} never came about'
        time.sleep(0.1)


def content(seed, size):
    return (hashlib.sha256(seed.encode()).digest() * (size // 32 + 1))[:size]


def body(s3, bucket, key, **args):
    return s3.get_object(Bucket=bucket, Key=key, **args)['Body'].read()


def keys(s3, bucket, **args):
    pages = s3.get_paginator('list_objects_v2').paginate(Bucket=bucket, **args)
    return [item['Key'] for page in pages for item in page.get('Contents', [])]


def rados_objects(text):
    """Objects of the data pool whose name holds a text."""
    return [name for name in run('rados', '-p', DATA, 'ls').splitlines() if text in name]


def users(endpoint):
    alice = admin('user create --uid=alice --display-name=Alice --email=alice@example.com')
    assert alice['user_id'] == 'alice' and len(alice['keys']) == 1, alice
    made = admin('subuser create --uid=alice --subuser=alice:swift --access=full')
    assert made['swift_keys'][0]['user'] == 'alice:swift', made
    assert admin('caps add --uid=alice --caps=usage=read')['caps'] == [{'type': 'usage', 'perm': 'read'}]
    bob = admin('user create --uid=bob --display-name=Bob --access-key=BOB --secret-key=secret')
    assert bob['keys'] == [{'user': 'bob', 'access_key': 'BOB', 'secret_key': 'secret'}], bob
    assert {'alice', 'bob'} <= set(admin('user list')), 'users are listed'
    s3, other = client(endpoint, alice), client(endpoint, bob)
    s3.create_bucket(Bucket='own')
    assert [b['Name'] for b in s3.list_buckets()['Buckets']] == ['own']
    refused('AccessDenied', other.list_objects_v2, Bucket='own')
    s3.put_bucket_acl(Bucket='own', GrantRead='id=bob', GrantFullControl='id=alice')
    assert keys(other, 'own') == []
    refused('AccessDenied', other.put_object, Bucket='own', Key='k', Body=b'x')
    bob['keys'][0]['secret_key'] = 'wrong'
    refused('SignatureDoesNotMatch', client(endpoint, bob).list_buckets)
    admin('user rm --uid=bob')
    until('a user who is gone', lambda: 'bob' not in admin('user list'))
    refused('InvalidAccessKeyId', other.list_buckets)
    # The same user by Swift, with the subuser's key.
    asked = urllib.request.Request(endpoint + '/auth/1.0', headers={
        'X-Auth-User': 'alice:swift', 'X-Auth-Key': made['swift_keys'][0]['secret_key']})
    with urllib.request.urlopen(asked, timeout=PATIENCE) as answer:
        url, token = answer.headers['X-Storage-Url'], answer.headers['X-Auth-Token']
    asked = urllib.request.Request(url, headers={'X-Auth-Token': token})
    with urllib.request.urlopen(asked, timeout=PATIENCE) as answer:
        assert answer.read().split() == [b'own']
    return s3


def objects(s3):
    s3.create_bucket(Bucket='objects')
    sizes = {'empty': 0, 'byte': 1, 'small': 4096, 'edge': 4 * MIB, 'tail': 9 * MIB + 5}
    for key, size in sizes.items():
        data = content(key, size)
        put = s3.put_object(Bucket='objects', Key=key, Body=data, Metadata={'of': key}, ContentType='text/x')
        assert put['ETag'] == '"%s"' % hashlib.md5(data).hexdigest()
    for key, size in sizes.items():
        got = s3.get_object(Bucket='objects', Key=key)
        assert got['Body'].read() == content(key, size), key
        assert got['Metadata'] == {'of': key} and got['ContentType'] == 'text/x'
    tail = content('tail', sizes['tail'])
    for first, last in [(0, 0), (4 * MIB - 3, 4 * MIB + 3), (8 * MIB, 9 * MIB + 4)]:
        assert body(s3, 'objects', 'tail', Range=f'bytes={first}-{last}') == tail[first:last + 1]
    refused('InvalidRange', s3.get_object, Bucket='objects', Key='small', Range='bytes=5000-')
    refused('PreconditionFailed', s3.get_object, Bucket='objects', Key='small', IfMatch='"other"')
    s3.copy_object(Bucket='objects', Key='copy', CopySource='objects/tail')
    s3.put_object(Bucket='objects', Key='tail', Body=b'written over')
    assert body(s3, 'objects', 'copy') == tail and body(s3, 'objects', 'tail') == b'written over'
    s3.put_object_tagging(Bucket='objects', Key='small', Tagging={'TagSet': [{'Key': 'a', 'Value': 'b'}]})
    assert s3.get_object_tagging(Bucket='objects', Key='small')['TagSet'] == [{'Key': 'a', 'Value': 'b'}]
    assert keys(s3, 'objects') == sorted([*sizes, 'copy'])


def lists(s3):
    s3.create_bucket(Bucket='listed')
    names = sorted(f'{folder}/{n:02}' for folder in ('x', 'y', 'ü') for n in range(12))
    for name in names:
        s3.put_object(Bucket='listed', Key=name, Body=name.encode())
    assert keys(s3, 'listed', PaginationConfig={'PageSize': 5}) == names
    assert keys(s3, 'listed', Prefix='y/0', StartAfter='y/04') == [f'y/0{n}' for n in range(5, 10)]
    tops = s3.list_objects_v2(Bucket='listed', Delimiter='/')
    assert [p['Prefix'] for p in tops['CommonPrefixes']] == ['x/', 'y/', 'ü/'] and tops['KeyCount'] == 3
    gone = [{'Key': name} for name in names if name.startswith('x')]
    s3.delete_objects(Bucket='listed', Delete={'Objects': gone})
    refused('NoSuchKey', s3.get_object, Bucket='listed', Key='x/00')
    refused('BucketNotEmpty', s3.delete_bucket, Bucket='listed')
    s3.delete_objects(Bucket='listed', Delete={'Objects': [{'Key': n} for n in keys(s3, 'listed')]})
    s3.delete_bucket(Bucket='listed')
    refused('NoSuchBucket', s3.list_objects_v2, Bucket='listed')


def multipart(s3):
    upload = {'Bucket': 'objects', 'Key': 'parts'}
    upload['UploadId'] = s3.create_multipart_upload(**upload)['UploadId']
    parts = [content(f'part {n}', size) for n, size in enumerate([5 * MIB, 5 * MIB + 7, 3])]
    made = [{'PartNumber': n, 'ETag': s3.upload_part(**upload, PartNumber=n, Body=part)['ETag']}
            for n, part in enumerate(parts, 1)]
    assert [p['Size'] for p in s3.list_parts(**upload)['Parts']] == [len(p) for p in parts]
    refused('NoSuchKey', s3.get_object, Bucket='objects', Key='parts')
    s3.complete_multipart_upload(**upload, MultipartUpload={'Parts': made})
    sums = b''.join(hashlib.md5(part).digest() for part in parts)
    # The answer itself has none in 16.2.15.
    etag = s3.head_object(Bucket='objects', Key='parts')['ETag']
    assert etag == '"%s-3"' % hashlib.md5(sums).hexdigest(), etag
    whole = b''.join(parts)
    assert body(s3, 'objects', 'parts') == whole
    edge = 5 * MIB
    assert body(s3, 'objects', 'parts', Range=f'bytes={edge - 9}-{edge + 9}') == whole[edge - 9:edge + 10]
    upload = {'Bucket': 'objects', 'Key': 'given up'}
    upload['UploadId'] = s3.create_multipart_upload(**upload)['UploadId']
    s3.upload_part(**upload, PartNumber=1, Body=b'x')
    assert [u['Key'] for u in s3.list_multipart_uploads(Bucket='objects')['Uploads']] == ['given up']
    s3.abort_multipart_upload(**upload)
    assert 'Uploads' not in s3.list_multipart_uploads(Bucket='objects')


def versions(s3):
    s3.create_bucket(Bucket='versions')
    s3.put_object(Bucket='versions', Key='k', Body=b'before')
    s3.put_bucket_versioning(Bucket='versions', VersioningConfiguration={'Status': 'Enabled'})
    ids = [s3.put_object(Bucket='versions', Key='k', Body=b'%d' % n)['VersionId'] for n in range(3)]
    marker = s3.delete_object(Bucket='versions', Key='k')
    assert marker['DeleteMarker']
    refused('NoSuchKey', s3.get_object, Bucket='versions', Key='k')
    assert keys(s3, 'versions') == []
    listed = s3.list_object_versions(Bucket='versions')
    assert [v['VersionId'] for v in listed['Versions']] == [*reversed(ids), 'null']
    assert [m['IsLatest'] for m in listed['DeleteMarkers']] == [True]
    assert body(s3, 'versions', 'k', VersionId=ids[0]) == b'0' and body(s3, 'versions', 'k', VersionId='null') == b'before'
    s3.delete_object(Bucket='versions', Key='k', VersionId=marker['VersionId'])
    assert body(s3, 'versions', 'k') == b'2'
    s3.delete_object(Bucket='versions', Key='k', VersionId=ids[2])
    assert body(s3, 'versions', 'k') == b'1'
    for version in [*ids[:2], 'null']:
        s3.delete_object(Bucket='versions', Key='k', VersionId=version)
    assert 'Versions' not in s3.list_object_versions(Bucket='versions')
    s3.delete_bucket(Bucket='versions')


def lifecycle(s3):
    s3.create_bucket(Bucket='cycle')
    for key in ['old/1', 'old/2', 'kept']:
        s3.put_object(Bucket='cycle', Key=key, Body=b'x')
    rule = {'ID': 'r', 'Status': 'Enabled', 'Filter': {'Prefix': 'old/'}, 'Expiration': {'Days': 1}}
    s3.put_bucket_lifecycle_configuration(Bucket='cycle', LifecycleConfiguration={'Rules': [rule]})
    assert s3.get_bucket_lifecycle_configuration(Bucket='cycle')['Rules'] == [rule]
    assert [entry['bucket'].split(':')[1] for entry in admin('lc list')] == ['cycle']
    until('the end of old objects', lambda: keys(s3, 'cycle') == ['kept'])
    s3.delete_bucket_lifecycle(Bucket='cycle')
    refused('NoSuchLifecycleConfiguration', s3.get_bucket_lifecycle_configuration, Bucket='cycle')
    # A round that has begun puts the bucket back into the list, where later rounds leave a bucket without rules for ever
    # (bucket_lc_process in src/rgw/rgw_lc.cc returns 0). A bucket that is gone leaves the list with the next round.
    s3.delete_object(Bucket='cycle', Key='kept')
    s3.delete_bucket(Bucket='cycle')
    until('no bucket in the list of lifecycles', lambda: admin('lc list') == [])


def reshard(s3):
    before = keys(s3, 'objects')
    shards = admin('bucket stats --bucket=objects')['num_shards']
    admin('bucket reshard --bucket=objects --num-shards=7 --yes-i-really-mean-it')
    stats = admin('bucket stats --bucket=objects')
    assert (shards, stats['num_shards']) == (11, 7), (shards, stats)
    assert stats['usage']['rgw.main']['num_objects'] == len(before)
    assert keys(s3, 'objects') == before
    s3.put_object(Bucket='objects', Key='after', Body=b'x')
    assert sorted(e['entry']['name'] for e in admin('bi list --bucket=objects')) == sorted([*before, 'after'])
    checked = admin('bucket check --bucket=objects')
    sums = checked['check_result']
    assert checked['invalid_multipart_entries'] == [] and sums['existing_header'] == sums['calculated_header'], checked


def gc(s3):
    s3.put_object(Bucket='objects', Key='waste', Body=content('waste', 9 * MIB))
    head = [name for name in rados_objects('_waste') if '__shadow_' not in name]
    assert len(head) == 1, head
    manifest = admin('object stat --bucket=objects --object=waste')['manifest']
    mine = lambda: rados_objects(manifest['prefix'])
    assert len(mine()) == 2, mine()
    s3.delete_object(Bucket='objects', Key='waste')
    listed = [o['oid'] for chain in admin('gc list --include-all') for o in chain['objs']]
    assert set(mine()) <= set(listed) and not set(head) & set(rados_objects('_waste'))
    admin('gc process --include-all')
    assert mine() == [] and admin('gc list --include-all') == []


def quotas(s3):
    admin('quota set --uid=alice --quota-scope=bucket --max-objects=3 --max-size=1M')
    admin('quota enable --uid=alice --quota-scope=bucket')
    s3.create_bucket(Bucket='quota')
    refused('QuotaExceeded', s3.put_object, Bucket='quota', Key='large', Body=bytes(MIB + 4096))
    for key in '123':
        s3.put_object(Bucket='quota', Key=key, Body=b'x')
    refused('QuotaExceeded', s3.put_object, Bucket='quota', Key='4', Body=b'x')
    admin('quota disable --uid=alice --quota-scope=bucket')
    s3.put_object(Bucket='quota', Key='4', Body=b'x')
    admin('user stats --uid=alice --sync-stats')
    total = sum(s.get('usage', {}).get('rgw.main', {}).get('num_objects', 0) for s in admin('bucket stats --uid=alice'))
    until('the sums of a user', lambda: admin('user stats --uid=alice --sync-stats')['stats']['num_objects'] == total)


def usage():
    def written():
        shown = admin('usage show --uid=alice')
        sums = [c for s in shown['summary'] for c in s['categories'] if c['category'] == 'put_obj']
        # Large bodies alone are above this.
        return sums and sums[0]['successful_ops'] > 40 and sums[0]['bytes_received'] > 30 * MIB
    until('usage', written)

    def trimmed():
        # What was done last may be logged in between.
        admin('usage trim --uid=alice --yes-i-really-mean-it')
        return admin('usage show --uid=alice')['entries'] == []
    until('an empty log of usage', trimmed)


def steps(endpoint):
    begin = time.monotonic()
    s3 = users(endpoint)
    for step in [objects, lists, multipart, versions, lifecycle, reshard, gc, quotas]:
        step(s3)
        print(f'{time.monotonic() - begin:5.1f} {step.__name__}', flush=True)
    usage()
    print('done', flush=True)


def write(endpoint):
    s3 = client(endpoint, admin('user info --uid=alice'))
    s3.create_bucket(Bucket='writes')
    end = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), end.set()), daemon=True).start()
    written = {}

    def writer(name):
        mine = boto_of(name)
        n = 0
        while not end.is_set():
            key = f'{name}/{n % 40}'
            data = content(f'{key} {n}', 5 * MIB + n if n % 20 == 7 else 100 + n)
            mine.put_object(Bucket='writes', Key=key, Body=data)
            written[key] = hashlib.md5(data).hexdigest()
            n += 1
            if n % 10 == 0:
                print(name, n, flush=True)

    def boto_of(_):
        return client(endpoint, admin('user info --uid=alice'))

    threads = [threading.Thread(target=writer, args=[name]) for name in 'abc']
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert sorted(written) == keys(s3, 'writes')
    for key, digest in written.items():
        assert hashlib.md5(body(s3, 'writes', key)).hexdigest() == digest, key
    assert admin('bucket stats --bucket=writes')['usage']['rgw.main']['num_objects'] == len(written)
    print('read', len(written), flush=True)


if __name__ == '__main__':
    {'steps': steps, 'write': write}[sys.argv[2]](sys.argv[1])
