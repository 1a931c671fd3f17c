// SPDX-License-Identifier: GPL-2.0-only
/*
 * The size of a struct that only the kernel's sources declare, from the type information in
 * /sys/kernel/btf (Documentation/bpf/btf.rst). The kernel keeps the same information parsed, but
 * has no function for modules to ask. The size is unknown where a struct isn't described there, or
 * not as that document says.
 */
#include <linux/fs.h>
#include <linux/vmalloc.h>
#include <uapi/linux/btf.h>
#include "mltcp.h"

/* Newer than the oldest headers that the module is built with. */
#define KIND_FLOAT 16
#define KIND_DECL_TAG 17
#define KIND_TYPE_TAG 18
#define KIND_ENUM64 19

/* Bytes of the header that all versions have. */
#define HEADER_LEN offsetofend(struct btf_header, str_len)

struct btf_file {
	void *data;
	u32 size;
	const struct btf_header *header;
};

/* The whole file, of less than 256 MiB; NULL where there is none. */
static void *read_file(const char *path, u32 *size)
{
	struct file *file = filp_open(path, O_RDONLY, 0);
	void *data = NULL;
	loff_t at = 0, all;

	if (IS_ERR(file))
		return NULL;
	all = i_size_read(file_inode(file));
	if (all > 0 && all < SZ_256M)
		data = vmalloc(all);
	while (data && at < all) {
		ssize_t got = kernel_read(file, data + at, all - at, &at);

		if (got <= 0) {
			vfree(data);
			data = NULL;
		}
	}
	fput(file);
	*size = all;
	return data;
}

static bool open_btf(const char *name, struct btf_file *file)
{
	const struct btf_header *header;
	char path[80];

	snprintf(path, sizeof(path), "/sys/kernel/btf/%s", name);
	file->data = read_file(path, &file->size);
	if (!file->data)
		return false;
	file->header = header = file->data;
	return file->size > HEADER_LEN && header->magic == BTF_MAGIC &&
	       header->hdr_len >= HEADER_LEN &&
	       (u64)header->hdr_len + header->type_off + header->type_len <= file->size &&
	       (u64)header->hdr_len + header->str_off + header->str_len <= file->size;
}

/*
 * The offset of the name among the strings, from 0 on in a module's file; negative: there is none.
 */
static s64 find_name(const struct btf_file *file, const char *name)
{
	const char *strings = file->data + file->header->hdr_len + file->header->str_off;
	u32 length = strlen(name) + 1, at;

	for (at = 0; at + length <= file->header->str_len; at += strlen(strings + at) + 1) {
		if (!memcmp(strings + at, name, length))
			return at;
		/* A string without an end would lead out of the file. */
		if (strnlen(strings + at, file->header->str_len - at) == file->header->str_len - at)
			break;
	}
	return -ENOENT;
}

/* Bytes that follow a type's first three words; negative for an unknown kind. */
static int extra(const struct btf_type *type)
{
	u32 n = BTF_INFO_VLEN(type->info);

	switch (BTF_INFO_KIND(type->info)) {
	case BTF_KIND_PTR:
	case BTF_KIND_FWD:
	case BTF_KIND_TYPEDEF:
	case BTF_KIND_VOLATILE:
	case BTF_KIND_CONST:
	case BTF_KIND_RESTRICT:
	case BTF_KIND_FUNC:
	case KIND_FLOAT:
	case KIND_TYPE_TAG:
		return 0;
	case BTF_KIND_INT:
	case BTF_KIND_VAR:
	case KIND_DECL_TAG:
		return sizeof(u32);
	case BTF_KIND_ARRAY:
		return sizeof(struct btf_array);
	case BTF_KIND_STRUCT:
	case BTF_KIND_UNION:
		return n * sizeof(struct btf_member);
	case BTF_KIND_ENUM:
		return n * sizeof(struct btf_enum);
	case BTF_KIND_FUNC_PROTO:
		return n * sizeof(struct btf_param);
	case BTF_KIND_DATASEC:
		return n * sizeof(struct btf_var_secinfo);
	case KIND_ENUM64:
		return n * 3 * sizeof(u32);
	default:
		return -1;
	}
}

/*
 * The size of the largest struct of that name, as files of the kernel may have one each; 0: none.
 */
static u32 find_size(const struct btf_file *file, u32 name)
{
	const void *at = file->data + file->header->hdr_len + file->header->type_off;
	const void *end = at + file->header->type_len;
	u32 size = 0;

	while (at + sizeof(struct btf_type) <= end) {
		const struct btf_type *type = at;
		int more = extra(type);

		if (more < 0)
			break;
		if (type->name_off == name && BTF_INFO_KIND(type->info) == BTF_KIND_STRUCT)
			size = max(size, type->size);
		at += sizeof(*type) + more;
	}
	return size;
}

u32 mltcp_btf_size(const char *module, const char *name)
{
	struct btf_file kernel, own;
	u32 size = 0;
	s64 at;

	/* A module's strings continue where the kernel's end. */
	if (open_btf("vmlinux", &kernel)) {
		if (!module) {
			at = find_name(&kernel, name);
			if (at >= 0)
				size = find_size(&kernel, at);
		} else {
			if (open_btf(module, &own)) {
				at = find_name(&own, name);
				if (at >= 0)
					size = find_size(&own, kernel.header->str_len + at);
				else if ((at = find_name(&kernel, name)) >= 0)
					size = find_size(&own, at);
			}
			vfree(own.data);
		}
	}
	vfree(kernel.data);
	return size;
}
